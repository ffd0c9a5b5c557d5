"""The wheel contains the product and nothing of the checkout; the product has no doors for the development cluster."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from tests.unit.tools.test_dependencies import CHECKOUT, PRODUCT, ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, as `pip wheel` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_its_packages_are_the_rooms_of_the_product(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PRODUCT)
    assert not set(PRODUCT) & set(CHECKOUT)


def test_it_contains_every_file_of_the_rooms(wheel: zipfile.ZipFile) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for room in PRODUCT
        for path in (ROOT / room).rglob("*")
        if path.is_file() and path.suffix not in {".pyc"} and "__pycache__" not in path.parts
    }
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == files


def test_it_asks_for_what_pyproject_declares(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    lines = wheel.read(name).decode().splitlines()
    wanted = [line for line in lines if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert not [line for line in wanted if "boto3" in line or "pytest" in line]
    assert [line for line in wanted if "httpx2" in line]


def test_the_product_reads_no_variable_of_the_development_cluster() -> None:
    found = [
        str(path.relative_to(ROOT))
        for room in (*PRODUCT, "chart")
        for path in (ROOT / room).rglob("*")
        if path.is_file() and path.suffix != ".pyc" and "AIM_DEV_" in path.read_text()
    ]
    assert not found


def test_the_product_imports_nothing_of_the_checkout() -> None:
    code = (
        "import sys, pkgutil, importlib\n"
        f"for room in {PRODUCT!r}:\n"
        "    package = importlib.import_module(room)\n"
        "    for found in pkgutil.walk_packages(package.__path__, room + '.'):\n"
        "        if not found.name.endswith('__main__'):\n"
        "            importlib.import_module(found.name)\n"
        f"print([name for name in sys.modules if name.partition('.')[0] in {CHECKOUT!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
