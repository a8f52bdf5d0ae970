"""What a model is and how the engine runs it, as frozen and validated data.

Nothing mutates a config. A value derived from one (the number of pages that fit, say) is passed on under its own name.
This module is a leaf: it imports nothing of the project, and no jax, so that the scheduler can use it.
"""

import reprlib
from dataclasses import dataclass
from typing import Literal, cast, get_args

CacheMode = Literal["paged", "contiguous"]
"""Pages taken as tokens need them; or, for research, as engines did before paging: the longest length at once."""

_MAX_INT32 = 2**31 - 1
"""Positions, token ids and page ids are int32 on the device."""

_GROUP_SIZE = 64
"""Of INT4 where the user names none: 0.28 of bfloat16's bytes, and each half of a piece of the kernels is one group."""

_MAX_PER_STEP = 2**16
"""Far above what any device computes in one step, and low enough to be refused before memory is asked for it."""


def _require_positive_int(name: str, value: object, largest: int = _MAX_INT32) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
        raise ValueError(f"{name} is {reprlib.repr(value)}; it must be a whole number in [1, {largest}]")


def _require_number(name: str, value: object, least: float, most: float) -> None:
    if not isinstance(value, float | int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name} is {reprlib.repr(value)}; it must be a number in [{least:g}, {most:g}]")


def _required_tuple(name: str, value: object) -> tuple[object, ...]:
    """``value``: a config never changes and has a hash; with a list in it, it would not."""
    if not isinstance(value, tuple):
        raise ValueError(f"{name} is {reprlib.repr(value)}; it must be a tuple")
    return value


def _require_windows(windows: object) -> None:
    for i, window in enumerate(_required_tuple("windows", windows)):
        if window is not None:
            _require_positive_int(f"windows[{i}]", window)


@dataclass(frozen=True)
class RopeScaling:
    """Rotary angles for contexts longer than those of the first training: each frequency is divided by a number.

    Linear scaling, Llama 3's and YaRN differ in how these numbers follow from a few parameters, and a GGUF stores the
    numbers themselves, so the numbers are what a model is given.

    Attributes:
        divisors: one for each of the D / 2 frequencies, from the highest to the lowest.
        attention_factor: multiplies cosine and sine, so that each score is multiplied by its square (YaRN).

    Raises:
        ValueError: a number is out of range.
    """

    divisors: tuple[float, ...]
    attention_factor: float = 1.0

    def __post_init__(self) -> None:
        for i, divisor in enumerate(_required_tuple("divisors", self.divisors)):
            _require_number(f"divisors[{i}]", divisor, 1e-6, 1e6)
        _require_number("attention_factor", self.attention_factor, 1e-3, 1e3)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a decoder of the Mistral family: data that covers every member, never a subclass.

    ``head_dim`` is given, never computed as ``hidden_size / num_heads``: Mistral Nemo has 128 where that says 160.

    Attributes:
        vocab_size: V, rows of the embedding.
        hidden_size: width of the residual stream.
        intermediate_size: width of the gated feed-forward layer.
        num_layers: decoder layers.
        num_heads: H, query heads; a multiple of ``num_kv_heads``.
        num_kv_heads: K, key and value heads.
        head_dim: D, even, since rotary angles turn pairs.
        max_position_embeddings: the longest context in tokens, prompt and output together, whatever the windows are.
        rope_theta: base of the rotary angles.
        norm_eps: epsilon inside the square root of every RMS norm.
        tie_embeddings: whether the output head is the embedding.
        windows: for each layer the number of keys a token attends to, itself included, or None for all.
        qkv_bias: whether the products that make q, k and v add a bias.
        qk_norm: whether each query and key head is normed before it is rotated.
        rope_scaling: what changes the rotary angles; None: nothing.

    Raises:
        ValueError: a value is out of range or two contradict each other; the message names them.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rope_theta: float
    norm_eps: float
    tie_embeddings: bool
    windows: tuple[int | None, ...]
    qkv_bias: bool = False
    qk_norm: bool = False
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "max_position_embeddings",
        ):
            _require_positive_int(name, getattr(self, name))
        _require_number("rope_theta", self.rope_theta, 1, 1e30)  # in float32, its powers too
        _require_number("norm_eps", self.norm_eps, 1e-30, 1)
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads is {self.num_heads} and num_kv_heads is {self.num_kv_heads}; "
                "the query heads must be a multiple of the key and value heads"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; rotary embeddings need an even one")
        if self.rope_scaling is not None and len(self.rope_scaling.divisors) != self.head_dim // 2:
            raise ValueError(
                f"rope_scaling has {len(self.rope_scaling.divisors)} divisors; "
                f"a head of {self.head_dim} has {self.head_dim // 2} frequencies"
            )
        _require_windows(self.windows)
        if len(self.windows) != self.num_layers:
            raise ValueError(f"windows has {len(self.windows)} entries for {self.num_layers} layers")

    @property
    def kv_elements_per_token(self) -> int:
        """Numbers that the cache keeps for one token: K and V of every layer."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim

    @property
    def group_windows(self) -> tuple[int | None, ...]:
        """For each cache group, the layers of one window, that window: None first, then from wide to narrow."""
        windows = sorted({window for window in self.windows if window is not None}, reverse=True)
        return (None, *windows) if None in self.windows else tuple(windows)

    @property
    def layer_groups(self) -> tuple[int, ...]:
        """For each layer the index of its cache group."""
        return tuple(map(self.group_windows.index, self.windows))


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """How a matrix is held in fewer bits.

    Attributes:
        bits: 8: INT8, one scale for each output channel; 4: INT4, a scale and an offset for each group of inputs.
        group_size: inputs of an INT4 group: 32, 64, 128, or None for the whole row; None with 8 bits.

    Raises:
        ValueError: a value is out of range.
    """

    bits: int
    group_size: int | None = None

    def __post_init__(self) -> None:
        if type(self.bits) is not int or self.bits not in (4, 8):
            raise ValueError(f"bits is {reprlib.repr(self.bits)}; it must be 4 or 8")
        is_group = self.bits == 4 and type(self.group_size) is int and self.group_size in (32, 64, 128)
        if self.group_size is not None and not is_group:
            allowed = "None with 8 bits" if self.bits == 8 else "32, 64, 128, or None for the whole row"
            raise ValueError(f"group_size is {reprlib.repr(self.group_size)}; it must be {allowed}")

    def __str__(self) -> str:
        """In words, such as ``int4 in groups of 32``."""
        if self.bits == 8:
            return "int8"
        return f"int4 in groups of {self.group_size}" if self.group_size else "int4 by rows"

    @classmethod
    def named(cls, name: str | None, group_size: int | None) -> "QuantizationChoice":
        """What a user calls ``int8`` or ``int4``, the latter with a group size (0 for the whole row; None: 64), or the
        choice ``auto``, ``stored`` or ``none``, which is None too.

        Raises:
            ValueError: there is no such quantization, or a group size without INT4.
        """
        if name not in (None, "none", "auto", "stored", "int8", "int4"):
            raise ValueError(
                f"quantization is {reprlib.repr(name)}; it must be 'auto', 'stored', 'none', 'int8' or 'int4'"
            )
        if name == "int4":
            if group_size is not None and not (type(group_size) is int and group_size in (0, 32, 64, 128)):
                raise ValueError(
                    f"group_size is {reprlib.repr(group_size)}; it must be 32, 64, 128, or 0 for the whole row"
                )
            return cls(
                bits=4, group_size=_GROUP_SIZE if group_size is None else None if group_size == 0 else group_size
            )
        if group_size is not None:
            raise ValueError(f"group_size is {reprlib.repr(group_size)}, and only quantization 'int4' has groups")
        if name in ("auto", "stored"):
            return cast(Literal["auto", "stored"], name)
        return cls(bits=8) if name == "int8" else None


QuantizationChoice = Quantization | Literal["auto", "stored"] | None
"""A format that floats are rounded to, ``stored`` for what the checkpoint has, ``auto`` for whichever of ``stored`` and
floats suits the device, or None for floats."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How the engine serves a model: the limits that fix every compiled shape.

    Attributes:
        max_model_len: the longest sequence in tokens, prompt and output together.
        max_num_seqs: requests that run at the same time; also the largest number of rows of a program.
        max_chunk_tokens: prompt tokens of one step, padding included; a multiple of ``block_q``.
        page_size: tokens of one KV page.
        num_kv_pages: pages that requests can hold of the first cache group, which is the only one unless the layers'
            windows differ (the dummy page for padding comes on top); the others have theirs in proportion, see
            ``group_pages``.
        windows: of each cache group the window of its layers, as ``ModelConfig.group_windows``.
        prefix_cache: whether requests share the pages of equal prefixes.
        cache: ``paged``, or ``contiguous``: each request reserves the room of the longest one when it is admitted, and
            nothing is shared; for comparison only.
        block_q: query tokens of one attention tile; a piece of a prompt is padded up to a multiple of it.
        seed: seeds the seeds of the requests that bring none.
    """

    max_model_len: int
    max_num_seqs: int = 32
    max_chunk_tokens: int = 256
    page_size: int = 16
    num_kv_pages: int
    windows: tuple[int | None, ...] = (None,)
    prefix_cache: bool = True
    cache: CacheMode = "paged"
    block_q: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_model_len", "num_kv_pages"):
            _require_positive_int(name, getattr(self, name))
        for name in ("max_num_seqs", "max_chunk_tokens", "page_size", "block_q"):
            _require_positive_int(name, getattr(self, name), _MAX_PER_STEP)
        if self.max_chunk_tokens % self.block_q:
            raise ValueError(
                f"max_chunk_tokens is {self.max_chunk_tokens}; "
                f"it must be a multiple of block_q, which is {self.block_q}"
            )
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise ValueError(f"seed is {reprlib.repr(self.seed)}; it must be a whole number")
        _require_windows(self.windows)
        if not self.windows:
            raise ValueError("windows is empty; there must be a cache group")
        if not isinstance(self.prefix_cache, bool):
            raise ValueError(f"prefix_cache is {reprlib.repr(self.prefix_cache)}; it must be True or False")
        if not isinstance(self.cache, str) or self.cache not in get_args(CacheMode):
            raise ValueError(f"cache is {reprlib.repr(self.cache)}; it must be 'paged' or 'contiguous'")

    @property
    def table_widths(self) -> tuple[int, ...]:
        """P of each cache group: the most pages of it that a request ever holds.

        A step of n tokens reads and writes at most W + n - 1 positions in a row, which touch at most
        ceil((W + n) / page_size) + 1 pages.
        """
        longest = -(-self.max_model_len // self.page_size)
        if self.cache == "contiguous":
            return (longest,) * len(self.windows)
        of_windows = (
            longest if window is None else -(-(window + self.max_chunk_tokens) // self.page_size) + 1
            for window in self.windows
        )
        return tuple(min(longest, width) for width in of_windows)

    def least_pages(self, num_tokens: int) -> tuple[int, ...]:
        """For each cache group the fewest pages in which a request comes to ``num_tokens`` tokens if it runs alone.

        A token sees a window of W positions, itself included, which touch at most ceil(W / page_size) + 1 pages; a
        prompt is read in pieces as small as it takes.
        """
        all_pages = -(-num_tokens // self.page_size)
        if self.cache == "contiguous":
            return (all_pages,) * len(self.windows)
        return tuple(
            all_pages if window is None else min(all_pages, -(-window // self.page_size) + 1) for window in self.windows
        )

    @property
    def reserved_tokens(self) -> int:
        """Tokens for which a request takes pages when it is admitted, whatever it comes to need."""
        return self.max_model_len if self.cache == "contiguous" else 0

    @property
    def group_pages(self) -> tuple[int, ...]:
        """Pages that requests can hold of each cache group: in proportion to what the longest request takes of each."""
        widths = self.table_widths
        return tuple(-(-self.num_kv_pages * width // widths[0]) for width in widths)
