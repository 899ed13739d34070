"""Which capability a Node API needs, as data (Pi §2A.6); a member that is not named needs what `*` says."""

from __future__ import annotations

_READ = """
access accessSync createReadStream exists existsSync fstat fstatSync glob globSync lstat lstatSync opendir opendirSync
read readFile readFileSync readSync readdir readdirSync readlink readlinkSync realpath realpathSync stat statSync statfs
statfsSync unwatchFile watch watchFile openAsBlob
""".split()
_WRITE = """
appendFile appendFileSync chmod chmodSync chown chownSync copyFile copyFileSync cp cpSync createWriteStream
fchmod fchown fdatasync fdatasyncSync fsync fsyncSync ftruncate ftruncateSync futimes futimesSync lchown link
linkSync lutimes mkdir mkdirSync mkdtemp mkdtempSync rename renameSync rm rmSync rmdir rmdirSync symlink
symlinkSync truncate truncateSync unlink unlinkSync utimes utimesSync write writeFile writeFileSync writeSync
writev writevSync
""".split()
_PURE = "constants F_OK R_OK W_OK X_OK Stats Dirent Dir ReadStream WriteStream promises default close closeSync".split()

_FS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_READ, ("read",)),
    **dict.fromkeys(_WRITE, ("write",)),
    **dict.fromkeys(_PURE, ()),
    "*": ("read", "write"),
}
_ENV = (
    "arch cpus endianness freemem homedir hostname loadavg machine networkInterfaces platform release tmpdir totalmem"
)
_OS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys([*_ENV.split(), "type", "uptime", "userInfo", "version"], ("env",)),
    **dict.fromkeys(["EOL", "constants", "default"], ()),
    "*": ("env",),
}

# Module of Node (without prefix) -> member -> capabilities.
CAPABILITIES: dict[str, dict[str, tuple[str, ...]]] = {
    "fs": _FS,
    "fs/promises": _FS,
    "os": _OS,
    "child_process": {"*": ("exec",)},
    "http": {"STATUS_CODES": (), "METHODS": (), "default": (), "*": ("http",)},
    "https": {"default": (), "*": ("http",)},
    "http2": {"constants": (), "default": (), "*": ("http",)},
    "dns": {"default": (), "*": ("http",)},
    "dns/promises": {"default": (), "*": ("http",)},
    "undici": {
        **dict.fromkeys("Headers Request Response FormData File errors default getGlobalDispatcher".split(), ()),
        "*": ("http",),
    },
    "sqlite": {"default": (), "*": ("read", "write")},
}
METHODS = {"read": "fs", "write": "fs", "exec": "exec", "http": "http", "env": "env"}

# Members of the `pi` object.
PI_MEMBERS = {
    "exec": ("exec", "exec"),
    "http": ("http", "http"),
    "registerProvider": ("http", "http"),
    "log": ("log", "log"),
    **dict.fromkeys(
        ["appendEntry", "setSessionName", "getSessionName", "setLabel", "sendMessage", "sendUserMessage", "session"],
        ("session", "session"),
    ),
    "ui": ("ui", "ui"),
}
PI_FS = {"read": "read", "list": "read", "stat": "read", "write": "write", "mkdir": "write", "delete": "write"}

# Packages that say what they are for when their source cannot be read (Pi §2B.2, config hints).
HINTS = {"axios": "http", "got": "http", "node-fetch": "http", "undici": "http", "execa": "exec", "zx": "exec"}
