"""The HTTP server: OpenAI's API over one engine, a page to talk to, health and metrics.

A call's way: ``api_route`` checks the key and reads the body; a file of ``routes`` makes prompts and parameters of it
(``jaxinfer.openai_api``) and hands them to ``service``, which lets it in or refuses it; ``engine_thread`` runs the
engine; the outputs come through the call's ``mailbox`` back to the route, and go out whole or through
``event_stream``. A client that leaves ends its call wherever that is.
"""
