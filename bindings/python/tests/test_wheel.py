"""The wheel: what its RECORD says, and that a Python elsewhere imports what is in it."""
import base64
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).parents[3]
BUILT = os.environ.get("RADISH_PYTHON_BUILT")


@unittest.skipUnless(BUILT, "RADISH_PYTHON_BUILT does not say where the package was built")
class Wheel(unittest.TestCase):
    def test_it_is_whole_and_can_be_imported(self):
        with tempfile.TemporaryDirectory() as folder:
            made = [subprocess.run([sys.executable, ROOT / "tools/make-wheel.py", BUILT, folder], check=True,
                                   capture_output=True, text=True).stdout.strip() for _ in range(2)]
            self.assertRegex(made[0], r"radish-[\d.]+-cp311-abi3-\w+\.whl$")
            with zipfile.ZipFile(made[0]) as wheel:
                record = {line.split(",")[0]: line.split(",")[1:] for line in
                          wheel.read([n for n in wheel.namelist() if n.endswith("RECORD")][0]).decode().splitlines()}
                self.assertEqual(set(record), set(wheel.namelist()))
                for name, (digest, size) in record.items():
                    if name.endswith("RECORD"):
                        continue
                    data = wheel.read(name)
                    wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                    self.assertEqual((digest, int(size)), (f"sha256={wanted}", len(data)))
                self.assertIn("radish/py.typed", record)
                wheel.extractall(pathlib.Path(folder, "site"))
            said = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {folder + '/site'!r})\n"
                                   "import radish; print(radish.RadixCache(max_tokens=9).insert([1], [2]).node > 0)"],
                                  capture_output=True, text=True)
            self.assertEqual((said.stdout, said.stderr), ("True\n", ""))


if __name__ == "__main__":
    unittest.main()
