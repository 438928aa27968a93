"""What every test stands on: eight CPU devices, no network, types checked at run time.

To run on an accelerator instead: `JAX_PLATFORMS=cuda pytest -m device`.
"""

import ipaddress
import os
import shutil
import socket
import tempfile
from pathlib import Path

# Inherited by the subprocesses that tests start, hence the environment and not jax.config.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
# Half of the time would go into compiling the same small programs again, in this process and in
# those that tests start; a cache of this session alone keeps runs of the tests independent.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{tempfile.gettempdir()}/cpt_jax_{os.getpid()}")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # tests fork; tokenizers warns about that

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_num_cpu_devices", 8)
install_import_hook("cpt_jax", "runtime_types.check")

REPO = Path(__file__).parents[1]
SHARED = REPO.parent / "shared"
USED_SHARED = "used_shared"


@pytest.fixture(scope="session")
def repo() -> Path:
    """The checkout."""
    return REPO


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the checkout; the test skips where there is none."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"no real data at {SHARED / 'data'}")
    return SHARED


def _is_local(host: str | bytes | None) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(name.split("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _refuse_network() -> None:
    """A test that reaches out fails at once, in its own name, whatever the code under test catches.

    Servers on the loopback interface and Unix sockets stay allowed.
    """

    def guarded(method):
        def call(self: socket.socket, address):
            if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(address[0]):
                pytest.fail(f"a test tried to connect to {address}: tests have no network")
            return method(self, address)

        return call

    resolve = socket.getaddrinfo

    def getaddrinfo(host, *args, **kwargs):
        if not _is_local(host):
            pytest.fail(f"a test tried to resolve {host!r}: tests have no network")
        return resolve(host, *args, **kwargs)

    socket.socket.connect = guarded(socket.socket.connect)
    socket.socket.connect_ex = guarded(socket.socket.connect_ex)
    socket.getaddrinfo = getaddrinfo


_refuse_network()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs_device = [item for item in items if item.get_closest_marker("device")]
    if needs_device and jax.default_backend() == "cpu":
        for item in needs_device:
            item.add_marker(pytest.mark.skip(reason="JAX has only the CPU here"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "shared" in getattr(item, "fixturenames", ()):
        # A property of the report, so that the count survives pytest-xdist.
        item.user_properties.append((USED_SHARED, "1"))


def pytest_unconfigure() -> None:
    cache = Path(tempfile.gettempdir()) / f"cpt_jax_{os.getpid()}"
    shutil.rmtree(cache, ignore_errors=True)


def pytest_terminal_summary(terminalreporter) -> None:
    used = sum(
        (USED_SHARED, "1") in report.user_properties
        for report in terminalreporter.stats.get("passed", [])
    )
    terminalreporter.write_line(f"tests that used ../shared: {used}")
