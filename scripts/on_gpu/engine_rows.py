"""How many rows the products of an engine have: what the tables of tile sizes are to hold."""

from jaxinfer.config import EngineConfig
from pallas_kernels.tuned import round_up

_ENGINES = ((EngineConfig.max_num_seqs, EngineConfig.max_chunk_tokens), (64, 512))
"""Most rows and most tokens of a chunk: of an engine whose user asks for nothing, and of a larger one."""


def rows_of_engine() -> tuple[int, ...]:
    """T of every forward program of such engines, up to a power of two as in the tables, ascending."""
    from jaxinfer.programs import chunk_sizes, row_sizes  # here: it needs flax, which tuning else does without

    programs = {
        rows + chunk
        for most_rows, most_tokens in _ENGINES
        for rows in row_sizes(most_rows)
        for chunk in chunk_sizes(most_tokens, EngineConfig.block_q)
    }
    return tuple(sorted({round_up(num_rows) for num_rows in programs}))
