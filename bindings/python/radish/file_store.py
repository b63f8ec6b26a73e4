"""radish.file_store - a storage backend in a folder: one file a record.

    store = radish.FileStore("/var/cache/kv", max_bytes=8 << 30)
    cache = radish.HiRadixCache(..., identity="the model's name", storage=store)

Several caches and processes may use a folder; records of different models may lie in one, since a key says
whose it is. A record is written beside its place and then renamed, so it is there whole or not at all; what
is in it is verified by libradish when it is read. Past max_bytes those go that were used least recently, as
far as this process has seen them used. Who can write into the folder can forge pages: it is made with mode
0700. (radish's server has a store with an index and few files, storage_file.h.)"""
import collections
import os
import re
import threading
import time
from typing import Dict, List, Optional, Union


_OURS = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{62}(\.\d+\.\d+\.part)?")  # anything else is somebody's


class FileStore:
    MAX_BYTES = 8 << 30
    name, medium = "file", "DISK"

    def __init__(self, folder: Union[str, "os.PathLike[str]"], max_bytes: int = MAX_BYTES) -> None:
        if not isinstance(max_bytes, int) or max_bytes < 0:
            raise ValueError(f"FileStore: max_bytes is {max_bytes!r}: it must be a number of bytes")
        self.folder, self.max_bytes = os.fspath(folder), max_bytes
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self._lock = threading.Lock()
        self._bytes = 0
        self._sizes: "collections.OrderedDict[str, int]" = collections.OrderedDict()  # the one used last at the end
        found = []
        for place, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(place, name)
                if not _OURS.fullmatch(os.path.relpath(path, self.folder)):
                    continue
                try:
                    status = os.stat(path)
                except FileNotFoundError:  # another process removed it
                    continue
                if not path.endswith(".part"):
                    found.append((status.st_mtime_ns, path, status.st_size))
                elif time.time() - status.st_mtime > 3600:  # of a process that was killed
                    self._remove(path)
        for _, path, size in sorted(found):
            self._note(path, size)
        self._make_room()

    @staticmethod
    def _remove(path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def _path(self, key: bytes) -> str:
        return os.path.join(self.folder, key.hex()[:2], key.hex())

    def _note(self, path: str, size: int) -> None:
        self._bytes += size - self._sizes.pop(path, 0)
        self._sizes[path] = size

    def _forget(self, path: str) -> None:
        self._bytes -= self._sizes.pop(path, 0)

    def _make_room(self) -> None:
        while self._bytes > self.max_bytes:
            path = next(iter(self._sizes))
            self._forget(path)
            self._remove(path)

    # What libradish calls, several threads at a time.

    def batch_exists(self, keys: List[bytes], deadline_ns: int) -> int:
        for count, key in enumerate(keys):
            if not os.path.exists(self._path(key)):
                return count
        return len(keys)

    def batch_get(self, keys: List[bytes], deadline_ns: int) -> List[Optional[bytes]]:
        return [self._get(self._path(key)) for key in keys]

    def _get(self, path: str) -> Optional[bytes]:
        try:
            with open(path, "rb") as file:
                record = file.read()
        except FileNotFoundError:
            with self._lock:
                self._forget(path)
            return None
        with self._lock:
            self._note(path, len(record))
        return record

    def batch_set(self, keys: List[bytes], records: List[bytes], deadline_ns: int) -> List[bool]:
        return [self._set(self._path(key), record) for key, record in zip(keys, records)]

    def _set(self, path: str, record: bytes) -> bool:
        if len(record) > self.max_bytes:
            return False
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        part = f"{path}.{os.getpid()}.{threading.get_ident()}.part"
        try:
            with open(part, "wb") as file:
                file.write(record)
            os.replace(part, path)
        except OSError:
            self._remove(part)
            raise
        with self._lock:
            self._note(path, len(record))
            self._make_room()
        return True

    def remove(self, key: bytes) -> None:
        with self._lock:
            self._forget(self._path(key))
        self._remove(self._path(key))

    def clear(self) -> None:
        with self._lock:
            for path in list(self._sizes):
                self._forget(path)
                self._remove(path)

    def stats(self) -> Dict[str, int]:
        with self._lock:
            return {"bytes": self._bytes, "max_bytes": self.max_bytes, "pages": len(self._sizes)}
