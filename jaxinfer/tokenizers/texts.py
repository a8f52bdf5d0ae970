"""The one check that every tokenizer makes of the text it is given: at a surrogate each library fails in its own words.

JSON can spell one (``"\\ud83e"``, half an emoji cut by a program that counts in UTF-16), so a client can send it.
"""

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def checked_text(text: str) -> str:
    """``text`` itself; ValueError names the first surrogate, which is half a character and has no UTF-8, and its place.

    In a Python string every surrogate is a lone one: a pair would be one character.
    """
    found = _SURROGATE.search(text)
    if found is not None:
        raise ValueError(
            f"the text has U+{ord(found[0]):04X} at position {found.start()}: a lone surrogate, half a character; "
            "text must be whole Unicode characters"
        )
    return text
