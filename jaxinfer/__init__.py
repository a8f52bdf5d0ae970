"""jaxinfer: an inference engine for open-weight language models of the Mistral family in JAX."""
