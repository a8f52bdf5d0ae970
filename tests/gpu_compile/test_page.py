"""The tables of docs/gpu-static.md say what is compiled today."""

from scripts.gpu_static.attention import launches
from scripts.gpu_static.forward import steps
from scripts.gpu_static.matmul import products
from scripts.gpu_static.tables import PAGE, TARGET_NAMES, launch_table, product_table, step_table, with_table
from tests.gpu_compile.reports import report


def everywhere(program):
    return {target: report(program, target) for target in TARGET_NAMES}


def test_the_page_is_up_to_date():
    page = PAGE.read_text(encoding="utf-8")
    fresh = with_table(page, "attention", launch_table([(launch, everywhere(launch)) for launch in launches()]))
    fresh = with_table(fresh, "products", product_table([(each, everywhere(each)) for each in products()]))
    fresh = with_table(fresh, "forward", step_table([(step, everywhere(step)) for step in steps()]))
    assert fresh == page, "run `make gpu-static`"
