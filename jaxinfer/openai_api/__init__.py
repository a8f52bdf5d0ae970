"""OpenAI's API as data: bodies of requests to prompts and parameters, outputs to bodies of answers.

It knows neither HTTP nor the engine: the server puts it behind addresses, and a batch of rows behind a file. Types are
pydantic's, strict: text is no number. A field that is not there is refused by name, since one that is misspelled would
be read by nobody; those of OpenAI's that change nothing here are taken and ignored.
"""
