"""Write the tables of ``docs/gpu-static.md`` anew, and say how long it took."""

import time

from scripts.gpu_static.attention import launches
from scripts.gpu_static.forward import steps
from scripts.gpu_static.matmul import products
from scripts.gpu_static.sample import samples
from scripts.gpu_static.tables import (
    PAGE,
    compile_everywhere,
    launch_table,
    product_table,
    sample_table,
    step_table,
    with_table,
)


def main() -> None:
    """Compile everything for every target."""
    begin = time.perf_counter()
    page = PAGE.read_text(encoding="utf-8")
    page = with_table(page, "attention", launch_table([(each, compile_everywhere(each)) for each in launches()]))
    page = with_table(page, "products", product_table([(each, compile_everywhere(each)) for each in products()]))
    page = with_table(page, "forward", step_table([(each, compile_everywhere(each)) for each in steps()]))
    page = with_table(page, "sample", sample_table([(each, compile_everywhere(each)) for each in samples()]))
    PAGE.write_text(page, encoding="utf-8")
    print(f"wrote {PAGE} in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
