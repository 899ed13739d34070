"""The virtual modules as the bundler sees them: small scripts that read the registry of the sandbox.

`IMPORT` serves `import`, `REQUIRE` serves `require()`. Both end in `RAW`, which asks the registry once. Names are not
known here: esbuild turns a named import from a module with a dynamic tail into a property read.
"""

from __future__ import annotations

import json
from typing import Any

REGISTRY = "globalThis.__forestay_modules__"
ROOT = "globalThis.__forestay_root__"

ENTRY = "forestay-entry"
IMPORT = "forestay-import"
REQUIRE = "forestay-require"
RAW = "forestay-raw"
MISSING = "forestay-missing"
HERE = "forestay-here"
PACKAGE = "npm"
_OURS = tuple(f"{namespace}:" for namespace in (ENTRY, IMPORT, REQUIRE, RAW, MISSING, HERE, PACKAGE))


def is_ours(name: str) -> bool:
    """Whether a source of a bundle is a module of the host; no file of an extension may have such a name."""
    return name.startswith(_OURS)


def load_import(ask: dict[str, Any]) -> dict[str, Any]:
    raw = json.dumps(f"{RAW}:{ask['path']}")
    return _script(f"const m=require({raw});export * from {raw};export default m.default===undefined?m:m.default;")


def load_require(ask: dict[str, Any]) -> dict[str, Any]:
    """`require()` gives what Node's does: the default export, with the named ones on it when it is a function."""
    raw = json.dumps(f"{RAW}:{ask['path']}")
    return _script(
        f"const m=require({raw}),d=m.default;"
        "if(typeof d==='function'){for(const k of Object.keys(m))if(!(k in d))d[k]=m[k];module.exports=d}"
        "else module.exports=m;"
    )


def load_raw(ask: dict[str, Any]) -> dict[str, Any]:
    return _script(f"module.exports={REGISTRY}({json.dumps(ask['path'])});")


def load_missing(ask: dict[str, Any]) -> dict[str, Any]:
    """A package that is not installed and only reached at run time fails there, as under Node."""
    text = json.dumps(f"Cannot find module '{ask['path']}'")
    return _script(f"throw Object.assign(new Error({text}),{{code:'MODULE_NOT_FOUND'}});")


def load_here(ask: dict[str, Any]) -> dict[str, Any]:
    """Where a module of the extension lies: its relative name is fixed, the folder is the host's."""
    name = json.dumps(ask["path"])
    return _script(
        f"const root=({ROOT}??'/').replace(/\\/+$/,''),parts=root.split('/');"
        f"for(const p of {name}.split('/'))if(p==='..')parts.pop();else parts.push(p);"
        "export const __filename=parts.join('/');"
        "export const __dirname=parts.slice(0,-1).join('/')||'/';"
        "export const __forestay_meta__={url:'file://'+encodeURI(__filename).replace(/[?#]/g,encodeURIComponent),"
        "filename:__filename,dirname:__dirname,main:false,"
        f"resolve:(s)=>{REGISTRY}('pi:node/module').resolveModule(s,__filename)}};"
        # Made when it is first used: few files ask.
        f"let own;const made=()=>own??={REGISTRY}('pi:node/module').createRequire(__filename);"
        "export const __forestay_resolve__=Object.assign((...a)=>made().resolve(...a),"
        "{paths:(s)=>made().resolve.paths(s)});"
        "export const __forestay_cache__=Object.create(null);"
    )


def _script(text: str) -> dict[str, Any]:
    return {"contents": text.encode(), "loader": "js"}
