"""New interpreters for code, forked from one that has imported what the library is built on.

Importing SciPy and scikit-learn takes longer than most of what a test runs. The library itself is
not imported before the fork, so code without the imports that it needs fails as elsewhere.
"""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PRELOADED = ("bm25s", "msgspec", "safetensors.numpy", "scipy.optimize", "sklearn.ensemble")


class WarmPython:
    """Starts interpreters; a context manager."""

    def __enter__(self) -> "WarmPython":
        pipe: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([sys.executable, __file__], **pipe)
        self._folder = TemporaryDirectory()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._folder.cleanup()

    def run(
        self, code: str, *, cwd: Path, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run code as ``python -c`` does; an old name of the library is an error."""
        outputs = [str(Path(self._folder.name, name)) for name in ("stdout", "stderr")]
        order = {"code": code, "cwd": str(cwd), "env": dict(env), "outputs": outputs}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        texts = (Path(path).read_text("utf-8") for path in outputs)
        return subprocess.CompletedProcess([], status, *texts)


def serve() -> None:
    """Fork for each order, a line of JSON; answer with the exit status."""
    for name in PRELOADED:
        __import__(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(order: dict[str, Any]) -> None:
    """Run the code of an order in this process, and end it."""
    import warnings

    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    for descriptor, path in zip((1, 2), order["outputs"], strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # What ``python -c`` has on its path: the working folder, and those of the environment.
    sys.path[:] = ["", *order["env"].get("PYTHONPATH", "").split(os.pathsep), *sys.path[1:]]
    sys.argv = ["-c"]
    warnings.filterwarnings("error", ".* will be removed in dtdr")
    status = 1
    try:
        assert "dtdr" not in sys.modules
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(compile(order["code"], "<string>", "exec"), vars(main))
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve()
