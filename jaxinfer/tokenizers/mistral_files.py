"""Which file of a model's folder is one of Mistral's own tokenizers.

Mistral writes the version of a vocabulary, which is also that of its form of a conversation, into the file's name:
``tokenizer.model.v3``. ``tekken.json`` says it inside. A ``tokenizer.model`` without one is the first version where
Mistral's ``params.json`` lies beside it, and anybody's vocabulary elsewhere.
"""

import re
from pathlib import Path

_VERSIONED = re.compile(r"tokenizer\.model\.v([0-9]{1,4})(m[0-9]{1,4})?")  # the end: what it knows of images


def find_mistral_file(folder: Path) -> Path | None:
    """``tekken.json``, else the ``tokenizer.model`` of the highest version; None where the folder has none of them.

    A folder may hold several: those that a model was published with once more, for newer programs.
    """
    if (folder / "tekken.json").is_file():
        return folder / "tekken.json"
    versioned = [(int(found[1]), path) for path in folder.iterdir() if (found := _VERSIONED.fullmatch(path.name))]
    if versioned:
        return max(versioned)[1]
    if (folder / "tokenizer.model").is_file() and (folder / "params.json").is_file():
        return folder / "tokenizer.model"
    return None
