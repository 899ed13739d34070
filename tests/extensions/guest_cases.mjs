// The same programs for Node and for the guest: each gets `require`, a folder of its own and a server, and returns JSON.

const fails = (call) => { try { call(); return "no error"; } catch (error) { return { name: error.name, code: error.code, message: error.message, syscall: error.syscall, errno: error.errno, path: error.path }; } };
const failsLater = async (call) => { try { await call(); return "no error"; } catch (error) { return { name: error.name, code: error.code, message: error.message }; } };

export const cases = {
  path: (require) => {
    const path = require("path");
    const samples = ["", ".", "..", "/", "//", "a", "a/", "a/b", "/a/b/", "a//b", "./a/../b", "../../a", "/../a", "a/./b/..", ".bashrc", "a.b.c", "a.", "..a", "/a/b.txt/", "a/b/../../..", "...", "a..b"];
    return samples.map((one) => [path.normalize(one), path.dirname(one), path.basename(one), path.basename(one, ".txt"), path.extname(one), path.isAbsolute(one), path.parse(one), path.format(path.parse(one)), path.resolve("/base", one), path.relative("/base/x", "/base/" + one), samples.map((two) => path.join(one, two))]).concat([[path.sep, path.delimiter, path.posix.join("a", "b"), fails(() => path.join(1))]]);
  },
  url: () => [
    "http://a.b/c?d=e#f", "HTTP://User:Pa%20ss@EXAMPLE.com:80/%7Efoo/../bar?x=1&y=%20#frag", "https://example.com:8080", "file:///a/b c", "file:///C:/x", "http://[::1]:3000/x", "http://[2001:db8::0:1]/", "http://0x7f.1/", "http://127.0.0.1:443/", "mailto:a@b.c", "data:text/plain,hi there", "http://exa mple.com", "//x", "", "http://", "http://a:99999/", "javascript:alert(1)", "http://münchen.de/ü?ü#ü", "http://a/b/c/./../../g", "blob:https://a/b", "http://a\\b\\c", "  http://a/  ", "ftp://a:21/x", "ws://a:80/", "http://a/?q='\"<>`", "http://1.2.3/", "http://256.256.256.256/", "git+ssh://git@host/a/b", "http://a/%zz", "http://a/b?c#d?e#f", "foo://a/b/../c", "http://例え.jp/",
  ].map((text) => { try { const u = new URL(text); return [u.href, u.origin, u.protocol, u.username, u.password, u.host, u.hostname, u.port, u.pathname, u.search, u.hash]; } catch (error) { return [text, error.name, error.code]; } }),
  urlRelative: () => ["../x", "/y", "?q", "#h", "", "z/../w", "//other/p", "http:q", "./", "a b", "..", "../../../.."].map((text) => [text, new URL(text, "http://host:81/a/b/c?d#e").href, new URL(text, "file:///p/q/r").href]),
  urlSet: () => { const u = new URL("http://a.b/c"); u.searchParams.append("x", "1 2"); u.searchParams.append("y", "ä&"); u.pathname = "/é f"; u.hash = "h i"; u.port = "8080"; u.hostname = "c.d"; u.protocol = "https"; u.username = "me:x"; const v = new URL("https://x/?a=1&b=2&a=3"); v.searchParams.delete("a"); v.searchParams.set("c", "é"); v.searchParams.sort(); return [u.href, JSON.stringify(u), v.href, [...v.searchParams], URL.canParse("x"), URL.canParse("x:y")]; },
  searchParams: () => { const p = new URLSearchParams("?a=1&b=%20x+y&a=2&=e&f&%zz=1"); return [[...p], p.toString(), p.getAll("a"), p.has("f"), p.get("zz"), p.size, new URLSearchParams({ x: 1, y: "é~*-._!'()" }).toString(), new URLSearchParams([["a", "b"]]).toString(), [...p.keys()], [...new URLSearchParams("a=1&a=2").entries()]]; },
  nodeUrl: (require) => { const url = require("url"); return [url.fileURLToPath("file:///a%20b/c"), url.pathToFileURL("/a b/#c?d%").href, fails(() => url.fileURLToPath("http://x")).code, url.parse("http://u:p@h:80/p?q=1#f").host, url.parse("/a?b=c", true).query.b, url.format({ protocol: "http", host: "a.b", pathname: "/c", query: { d: "e f" } }), url.resolve("/one/two", "three"), url.resolve("http://x.y/a/b", "../c")]; },
  querystring: (require) => { const q = require("querystring"); return [q.parse("a=1&b=2&a=3&c&d=%20+x"), q.stringify({ a: 1, b: ["x", "y z"], c: "", d: true, e: null, f: "é&=" }), q.escape("a b&c"), q.unescape("a%20b")]; },
  encoding: () => {
    const texts = ["", "abc", "äöü€", "😀 \ud800 x", "\u0000\uffff", "日本語"];
    const bytes = [[0xff], [0xc3], [0xe2, 0x82], [0xf0, 0x9f, 0x98, 0x80], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0x61, 0xf0, 0x80, 0x62], [0xef, 0xbb, 0xbf, 0x61], [0xf4, 0x90, 0x80, 0x80]];
    const decoder = new TextDecoder();
    return [texts.map((t) => [...new TextEncoder().encode(t)]), bytes.map((b) => new TextDecoder().decode(Uint8Array.from(b))), decoder.decode(Uint8Array.from([0xe2, 0x82]), { stream: true }) + decoder.decode(Uint8Array.from([0xac])), new TextDecoder("utf-16le").decode(Uint8Array.from([65, 0, 66, 0])), new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from([0xef, 0xbb, 0xbf, 0x61])), fails(() => new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from([0xff]))).name, fails(() => new TextDecoder("nope")).name, btoa("hello"), atob("aGVsbG8="), fails(() => atob("%%")).name, new TextEncoder().encodeInto("aé😀", new Uint8Array(4))];
  },
  buffer: (require) => {
    const { Buffer } = require("buffer");
    const b = Buffer.from("héllo wörld");
    const w = Buffer.alloc(16);
    w.writeUInt32BE(0xdeadbeef, 0); w.writeInt16LE(-2, 4); w.writeDoubleBE(1.5, 8); w.writeUInt8(255, 6);
    const big = Buffer.alloc(8); big.writeBigInt64LE(-5n);
    return [b.toString("hex"), b.toString("base64"), b.toString("base64url"), b.toString("latin1"), b.toString("ascii"), b.toString("utf16le").length, b.length, b.slice(1, 4).toString("hex"), [...Buffer.concat([Buffer.from("a"), Buffer.from("bc")])], Buffer.from("ff0g", "hex").length, Buffer.from("aGk", "base64").toString(), Buffer.byteLength("é€"), b.indexOf("w"), b.includes("xyz"), b.lastIndexOf("l"), b.equals(Buffer.from("héllo wörld")), Buffer.compare(Buffer.from("a"), Buffer.from("b")), w.toString("hex"), w.readUInt32BE(0), w.readInt16LE(4), w.readDoubleBE(8), big.readBigInt64LE().toString(), JSON.stringify(Buffer.from([1, 2])), Buffer.isBuffer(b), Buffer.isBuffer(new Uint8Array(1)), Buffer.from([256, -1, 3.7]).toString("hex"), Buffer.alloc(5, "ab").toString(), b.fill("x", 0, 2).toString("latin1", 0, 3), Buffer.from("abc").subarray(1).toString(), fails(() => Buffer.alloc(2).readUInt32LE(0)).code, fails(() => Buffer.from(null)).code, fails(() => Buffer.from("a", "nope")).code, Buffer.from("abcd").swap16().toString(), b instanceof Uint8Array, typeof Buffer.from("x").buffer, Buffer.from(Uint16Array.from([1, 257])).toString("hex"), w.write("zz", 14), w.toString("latin1", 14), Buffer.from("€").readUIntBE(0, 3), Buffer.from({ type: "Buffer", data: [1, 2] }).length, Buffer.from("test").toJSON().data, Buffer.of(1, 2).length, Buffer.from("a").compare(Buffer.from("a"))];
  },
  stringDecoder: (require) => { const { StringDecoder } = require("string_decoder"); const d = new StringDecoder("utf8"); return [d.write(Buffer.from([0xe2, 0x82])), d.write(Buffer.from([0xac, 0x61])), d.write(Buffer.from([0xf0])), d.end(), new StringDecoder("base64").write(Buffer.from("abcd")), new StringDecoder("hex").end(Buffer.from("hi"))]; },
  inspect: (require) => {
    const { inspect } = require("util");
    class Foo { constructor() { this.a = 1; } }
    const cyclic = { name: "c", inner: {} }; cyclic.inner.back = cyclic;
    const values = [1, -0, 1n, "it's", "a\nb", `q"'`, null, undefined, true, Symbol("s"), [1, 2, 3], [], {}, { a: 1, "b-c": [1, { d: { e: { f: 1 } } }] }, new Foo(), new Map([["k", { v: 1 }]]), new Set([1, "a"]), new Date(0), /re/g, () => 1, function named() {}, class A {}, class B extends Foo {}, [1, , 3], cyclic, Object.create(null), { get x() { return 1; }, set x(v) {}, get y() { return 2; } }, [undefined, null], new Uint8Array([1, 2]), Buffer.from("hi"), "x".repeat(20), { long: "a".repeat(60), other: "b".repeat(30) }, [["a", ["b", ["c", ["d"]]]]], new Error("boom").message, Object.assign(Object.create(null), { a: 1 }), [1.5, "two", { three: 3 }], { f() {}, g: () => {} }, new (class extends Map {})([[1, 2]]), [new Foo()], { a: { b: { c: {} } } }, { a: { b: { c: { d: 1 } } } }, new WeakMap(), Promise.resolve(1) && 1, { [Symbol("k")]: 1 }, new Number(3), new String("s"), [..."abcdefghij"], Array.from({ length: 30 }, (_, i) => i), Array.from({ length: 120 }, (_, i) => i * 3), ["apple", "banana", "cherry", "dragonfruit", "elderberry", "fig", "grape"], { toString() { return "x"; } }, async () => {}, function* gen() {}];
    return values.map((value) => inspect(value)).concat([inspect({ a: { b: { c: { d: 1 } } } }, { depth: 0 }), inspect({ a: { b: { c: { d: 1 } } } }, { depth: null }), inspect({ b: 2, a: 1 }, { sorted: true }), inspect({ a: 1, s: "x" }, { colors: true }), inspect("a", { colors: true }), inspect([1, 2, 3], { maxArrayLength: 1 }), inspect({ a: 1, b: { c: 2 } }, { compact: false }), inspect({ a: "x".repeat(90) }), inspect({ [inspect.custom]: () => "custom!" }), inspect({ a: [{ b: 1 }, { b: 2 }], c: "d" }), inspect(new Map([[{ a: 1 }, new Set([1])]])), inspect({ a: 1n, b: Symbol.iterator }), inspect([[]]), inspect({ a: {} }), inspect([{}, []]), inspect("multi\nline string that is quite long and goes on and on for more than a few characters")]);
  },
  format: (require) => { const { format } = require("util"); return [format("%s %d %i %f %j %o %O %%", "a", 1.5, 2.7, "3.1", { a: 1 }, [1], { b: 2 }), format("a", "b", { c: 1 }), format("%s", null, undefined), format("%d", "x"), format(1, 2, "3"), format("%s", Symbol("x")), format("%x", 1), format("%s", { a: { b: 1 } }), format("%c styled", "css"), format("no args %s"), format("%j", undefined), format("%s", -0), format("%s", [1, [2]]), format("%i", 42.9), format()]; },
  util: (require) => {
    const util = require("util");
    return [util.isDeepStrictEqual({ a: [1, new Map([[1, 2]])] }, { a: [1, new Map([[1, 2]])] }), util.isDeepStrictEqual([1], ["1"]), util.isDeepStrictEqual(new Set([{ a: 1 }]), new Set([{ a: 1 }])), util.stripVTControlCharacters("\u001b[31mred\u001b[0m \u001b]8;;http://x\u0007link\u001b]8;;\u0007"), util.types.isDate(new Date()), util.types.isRegExp({}), util.types.isPromise(Promise.resolve()), util.inherits.length, util.parseArgs({ args: ["-f", "--bar", "b", "pos", "--no-x", "--multi=1", "--multi", "2"], options: { foo: { type: "boolean", short: "f" }, bar: { type: "string" }, "no-x": { type: "boolean" }, multi: { type: "string", multiple: true }, def: { type: "string", default: "d" } }, allowPositionals: true }), fails(() => util.parseArgs({ args: ["--unknown"], options: {} })).code, fails(() => util.parseArgs({ args: ["x"], options: {} })).code, fails(() => util.promisify(1)).code].map((value) => JSON.parse(JSON.stringify(value)));
  },
  promisify: async (require) => { const { promisify, callbackify } = require("util"); const add = promisify((a, b, done) => done(null, a + b)); return [await add(1, 2), await failsLater(promisify((done) => done(new Error("no")))), await new Promise((resolve) => callbackify(async (x) => x * 2)(21, (error, value) => resolve([error, value])))]; },
  events: async (require) => {
    const EventEmitter = require("events");
    const log = [];
    const e = new EventEmitter();
    e.on("a", (x) => log.push(["on", x])); e.once("a", (x) => log.push(["once", x])); e.prependListener("a", (x) => log.push(["pre", x]));
    log.push(e.emit("a", 1), e.emit("a", 2), e.emit("none"), e.listenerCount("a"), e.eventNames().map(String));
    const f = () => 0; e.on("b", f); e.off("b", f); log.push(e.listenerCount("b"), fails(() => e.emit("error", new Error("x"))).message, fails(() => e.emit("error", "str")).code, fails(() => e.on("x", 1)).code);
    setTimeout(() => e.emit("later", 1, 2), 1);
    log.push(await EventEmitter.once(e, "later"), EventEmitter.defaultMaxListeners, typeof EventEmitter.EventEmitter);
    class Child extends EventEmitter { constructor() { super(); this.x = 1; } }
    const c = new Child(); c.on("q", function () { log.push(this === c); }); c.emit("q");
    e.removeAllListeners(); log.push(e.eventNames().length, e.rawListeners("a").length);
    return log;
  },
  assert: (require) => { const assert = require("assert"); return [fails(() => assert(0)).code, fails(() => assert.strictEqual(1, 2)).code, fails(() => assert.deepStrictEqual({ a: 1 }, { a: 1 })), fails(() => assert.throws(() => { throw new TypeError("x"); }, TypeError)), fails(() => assert.throws(() => {})).message, fails(() => assert.ok(true)), fails(() => assert.equal(1, "1")), fails(() => assert.match("abc", /x/)).code, fails(() => assert.rejects)]; },
  fsSync: (require, dir) => {
    const fs = require("fs");
    const path = require("path");
    const p = (name) => path.join(dir, name);
    const relative = (value) => JSON.parse(JSON.stringify(value).split(dir).join("<dir>"));
    const out = [];
    fs.writeFileSync(p("a.txt"), "héllo\n"); fs.appendFileSync(p("a.txt"), "more"); out.push(fs.readFileSync(p("a.txt"), "utf8"), fs.readFileSync(p("a.txt")).length, fs.readFileSync(p("a.txt"), { encoding: "base64" }));
    out.push(fs.existsSync(p("a.txt")), fs.existsSync(p("none")), fs.mkdirSync(p("d/e/f"), { recursive: true }), fs.mkdirSync(p("d/e/f"), { recursive: true }));
    fs.writeFileSync(p("d/x"), Buffer.from([0, 255, 128])); fs.copyFileSync(p("d/x"), p("d/y")); fs.renameSync(p("d/y"), p("d/z")); fs.symlinkSync("x", p("d/l"));
    out.push(fs.readdirSync(p("d")), fs.readdirSync(p("d"), { withFileTypes: true }).map((one) => [one.name, one.isFile(), one.isDirectory(), one.isSymbolicLink(), one.parentPath]), fs.readdirSync(dir, { recursive: true }).sort(), fs.readlinkSync(p("d/l")), fs.realpathSync(p("d/l")));
    const s = fs.statSync(p("d/x")); out.push(s.size, s.isFile(), s.isDirectory(), s.mode & 0o777, s.mtime instanceof Date, typeof s.mtimeMs, fs.lstatSync(p("d/l")).isSymbolicLink(), fs.statSync(p("none"), { throwIfNoEntry: false }));
    fs.chmodSync(p("d/x"), 0o600); fs.utimesSync(p("d/x"), 1, 2); out.push(fs.statSync(p("d/x")).mode & 0o777, fs.statSync(p("d/x")).mtimeMs);
    const fd = fs.openSync(p("fd"), "w+"); out.push(fs.writeSync(fd, "hello world"), fs.writeSync(fd, Buffer.from("J"), 0, 1, 0)); const b = Buffer.alloc(5); out.push(fs.readSync(fd, b, 0, 5, 0), b.toString(), fs.fstatSync(fd).size); fs.ftruncateSync(fd, 5); fs.closeSync(fd); out.push(fs.readFileSync(p("fd"), "utf8"));
    const r = fs.openSync(p("fd"), "r"); const c = Buffer.alloc(3); out.push(fs.readSync(r, c), c.toString(), fs.readSync(r, c), c.toString("latin1", 0, 2), fs.readSync(r, c)); fs.closeSync(r);
    const t = fs.mkdtempSync(p("tmp-")); out.push(t.length - p("tmp-").length); fs.rmSync(t, { recursive: true });
    out.push(...[() => fs.readFileSync(p("none")), () => fs.readFileSync(p("d")), () => fs.readdirSync(p("none")), () => fs.readdirSync(p("a.txt")), () => fs.mkdirSync(p("d")), () => fs.mkdirSync(p("n/o")), () => fs.unlinkSync(p("none")), () => fs.unlinkSync(p("d")), () => fs.rmdirSync(p("d")), () => fs.rmSync(p("none")), () => fs.rmSync(p("d")), () => fs.renameSync(p("none"), p("x")), () => fs.copyFileSync(p("none"), p("x")), () => fs.copyFileSync(p("a.txt"), p("d/x"), fs.constants.COPYFILE_EXCL), () => fs.accessSync(p("none")), () => fs.statSync(p("none")), () => fs.lstatSync(p("none")), () => fs.realpathSync(p("none")), () => fs.readlinkSync(p("a.txt")), () => fs.writeFileSync(p("a.txt"), "x", { flag: "wx" }), () => fs.openSync(p("none"), "r"), () => fs.closeSync(999), () => fs.readFileSync(p("a.txt"), "nope"), () => fs.readFileSync(7.5), () => fs.readFileSync("a\0b"), () => fs.writeFileSync(p("a.txt"), {}), () => fs.symlinkSync("x", p("d/l")), () => fs.rmdirSync(p("a.txt")), () => fs.truncateSync(p("none")), () => fs.chmodSync(p("none"), 0o600)].map((call) => relative(fails(call))));
    fs.rmSync(p("none"), { force: true }); fs.cpSync(p("d"), p("copy"), { recursive: true }); out.push(fs.readdirSync(p("copy")).sort()); fs.rmSync(p("copy"), { recursive: true, force: true }); fs.truncateSync(p("a.txt"), 3); out.push(fs.readFileSync(p("a.txt"), "latin1"));
    return relative(out.map((value) => (value === undefined ? "undefined" : value)));
  },
  fsAsync: async (require, dir) => {
    const fs = require("fs");
    const fsp = require("fs/promises");
    const path = require("path");
    const p = (name) => path.join(dir, name);
    const out = [];
    await fsp.writeFile(p("a"), "1"); await fsp.appendFile(p("a"), "2"); out.push(await fsp.readFile(p("a"), "utf8"), (await fsp.stat(p("a"))).size, await fsp.access(p("a")).then(() => "ok"), (await failsLater(() => fsp.readFile(p("none")))).code, (await failsLater(() => fsp.access(p("none")))).code);
    out.push(await new Promise((resolve) => fs.readFile(p("a"), "utf8", (error, value) => resolve([error, value]))), await new Promise((resolve) => fs.stat(p("none"), (error) => resolve(error.code))), await new Promise((resolve) => fs.readdir(dir, (error, value) => resolve(value.sort()))));
    const h = await fsp.open(p("h"), "w+"); await h.writeFile("handle"); out.push((await h.read(Buffer.alloc(3), 0, 3, 0)).bytesRead, (await h.stat()).size); await h.close();
    out.push(await new Promise((resolve, reject) => { const parts = []; fs.createReadStream(p("h"), { encoding: "utf8", start: 1, end: 4 }).on("data", (one) => parts.push(one)).on("end", () => resolve(parts.join(""))).on("error", reject); }));
    out.push(await new Promise((resolve, reject) => { const stream = fs.createWriteStream(p("w")); stream.write("a"); stream.end("b", () => resolve(fs.readFileSync(p("w"), "utf8"))); stream.on("error", reject); }));
    out.push(await new Promise((resolve) => fs.createReadStream(p("none")).on("error", (error) => resolve(error.code))));
    await fsp.rm(p("w")); await fsp.mkdir(p("x/y"), { recursive: true }); await fsp.rename(p("a"), p("x/a")); out.push(await fsp.readdir(p("x")), await fsp.realpath(p("x")).then((value) => value.endsWith("/x")));
    await require("stream/promises").pipeline(fs.createReadStream(p("h")), fs.createWriteStream(p("piped"))); out.push(fs.readFileSync(p("piped"), "utf8"));
    return out;
  },
  childProcess: async (require, dir) => {
    const cp = require("child_process");
    const out = [];
    const run = (command, args, options) => new Promise((resolve) => { const child = cp.spawn(command, args, { cwd: dir, ...options }); let stdout = "", stderr = ""; child.stdout?.on("data", (one) => (stdout += one)); child.stderr?.on("data", (one) => (stderr += one)); child.on("error", (error) => resolve(["error", error.code, error.syscall, error.path])); child.on("close", (code, signal) => resolve([stdout, stderr, code, signal])); });
    out.push(await run("sh", ["-c", "echo out; echo err >&2; exit 3"]), await run("no-such-program", []), await run("echo $((1+1))", [], { shell: true }));
    out.push(await new Promise((resolve) => { const child = cp.spawn("cat"); let text = ""; child.stdout.setEncoding("utf8"); child.stdout.on("data", (one) => (text += one)); child.on("close", (code) => resolve([text, code])); child.stdin.write("through "); child.stdin.end("stdin"); }));
    out.push(await new Promise((resolve) => { const child = cp.spawn("sleep", ["30"]); child.on("exit", (code, signal) => resolve([code, signal, child.killed])); child.on("spawn", () => child.kill()); }));
    out.push(await new Promise((resolve) => cp.exec("echo hi; exit 2", (error, stdout, stderr) => resolve([error.code, error.killed, error.cmd, error.message, stdout, stderr]))), await new Promise((resolve) => cp.execFile("printf", ["%s", "a b"], (error, stdout) => resolve([error, stdout]))), await require("util").promisify(cp.exec)("echo promised"), await new Promise((resolve) => cp.exec("echo $X", { env: { X: "1", PATH: process.env.PATH } }, (error, stdout) => resolve(stdout))), await new Promise((resolve) => cp.exec("sleep 30", { timeout: 200 }, (error) => resolve([error.killed, error.signal]))), await new Promise((resolve) => cp.exec("yes", { maxBuffer: 1000 }, (error, stdout) => resolve([error.code, stdout.length]))));
    out.push(cp.execSync("echo sync", { encoding: "utf8" }), cp.execSync("cat", { input: "given" }).toString(), cp.execFileSync("printf", ["x%sy", "1"], { encoding: "utf8" }));
    const s = cp.spawnSync("sh", ["-c", "echo o; echo e >&2; exit 4"], { encoding: "utf8" }); out.push([s.status, s.signal, s.stdout, s.stderr, s.output.length, s.error]);
    out.push(cp.spawnSync("no-such-program").error.code, fails(() => cp.execSync("exit 5", { stdio: "pipe" })).message, (() => { try { cp.execSync("echo out; echo bad >&2; exit 5", { stdio: "pipe" }); } catch (error) { return [error.status, String(error.stdout), String(error.stderr), error.message]; } })(), cp.spawnSync("sleep", ["30"], { timeout: 200 }).error.code, fails(() => cp.spawn("")).code, cp.execSync("pwd", { cwd: dir, encoding: "utf8" }).trim() === dir);
    return out;
  },
  crypto: (require) => {
    const c = require("crypto");
    const key = Buffer.alloc(32, 7), iv = Buffer.alloc(16, 9);
    const crypt = (name, size, vector) => { const a = c.createCipheriv(name, key.subarray(0, size), vector); const text = Buffer.concat([a.update("secret text, a little long", "utf8"), a.final()]); const tag = name.includes("gcm") ? a.getAuthTag() : undefined; const b = c.createDecipheriv(name, key.subarray(0, size), vector); if (tag) b.setAuthTag(tag); return [text.toString("hex"), tag?.toString("hex"), Buffer.concat([b.update(text), b.final()]).toString()]; };
    return [["md5", "sha1", "sha256", "sha384", "sha512", "sha3-256", "blake2b512"].map((name) => c.createHash(name).update("abc").update(Buffer.from([1, 2])).digest("hex")), c.createHash("sha256").update("é", "latin1").digest("base64"), c.createHmac("sha256", "key").update("data").digest("hex"), c.createHmac("sha1", Buffer.from("k")).update("").digest("base64url"), crypt("aes-256-cbc", 32, iv), crypt("aes-128-ctr", 16, iv), crypt("aes-256-gcm", 32, iv.subarray(0, 12)), c.pbkdf2Sync("p", "s", 10, 20, "sha256").toString("hex"), c.scryptSync("p", "s", 16).toString("hex"), Buffer.from(c.hkdfSync("sha256", "k", "s", "i", 40)).toString("hex"), c.randomBytes(8).length, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(c.randomUUID()), c.timingSafeEqual(Buffer.from("a"), Buffer.from("a")), fails(() => c.createHash("nope")).message, fails(() => c.timingSafeEqual(Buffer.from("a"), Buffer.from("ab"))).code, c.createHash("sha256").update("a").copy().update("b").digest("hex"), c.randomInt(5) < 5, fails(() => c.createCipheriv("aes-256-cbc", Buffer.alloc(3), iv)).code];
  },
  webcrypto: async () => { const hex = (bytes) => Buffer.from(bytes).toString("hex"); const key = await crypto.subtle.importKey("raw", new Uint8Array(16), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]); return [hex(await crypto.subtle.digest("SHA-256", new TextEncoder().encode("abc"))), hex(await crypto.subtle.sign("HMAC", key, new Uint8Array(3))), crypto.getRandomValues(new Uint8Array(4)).length, crypto.randomUUID().length]; },
  zlib: (require) => { const z = require("zlib"); const text = "hello ".repeat(100); return [z.gunzipSync(z.gzipSync(text)).toString() === text, z.inflateSync(z.deflateSync(text)).length, z.inflateRawSync(z.deflateRawSync(text)).length, z.unzipSync(z.gzipSync(text)).length, fails(() => z.gunzipSync(Buffer.from("nope"))).code, z.deflateSync("abc").toString("hex")]; },
  stream: async (require) => {
    const { Readable, Writable, Transform, PassThrough, pipeline } = require("stream");
    const out = [];
    const collect = async (stream) => { const parts = []; for await (const one of stream) parts.push(one.toString()); return parts; };
    out.push(await collect(Readable.from(["a", "b", "c"])));
    const upper = new Transform({ transform(chunk, _e, done) { done(null, chunk.toString().toUpperCase()); } });
    out.push((await collect(Readable.from(["x", "y"]).pipe(upper))).join(""));
    const written = []; const sink = new Writable({ write(chunk, _e, done) { written.push(chunk.toString()); setTimeout(done, 1); } });
    await new Promise((resolve, reject) => pipeline(Readable.from(["1", "2", "3"]), new PassThrough(), sink, (error) => (error ? reject(error) : resolve()))); out.push(written);
    const r = new Readable({ read() {} }); r.push("abc"); r.push(null); r.setEncoding("utf8"); out.push(await new Promise((resolve) => { let text = ""; r.on("data", (one) => (text += one)); r.on("end", () => resolve(text)); }));
    out.push((await failsLater(async () => { await require("stream/promises").pipeline(new Readable({ read() { this.destroy(new Error("bad")); } }), new PassThrough()); })).message);
    const w = new Writable({ highWaterMark: 2, write(chunk, _e, done) { setTimeout(done, 1); } }); out.push(w.write("a"), w.write("bcd")); await new Promise((resolve) => w.once("drain", resolve)); w.end(); await new Promise((resolve) => w.on("finish", resolve)); out.push(w.writableFinished, w.writableEnded);
    const o = new Readable({ objectMode: true, read() {} }); o.push({ a: 1 }); o.push({ a: 2 }); o.push(null); const objects = []; for await (const one of o) objects.push(one); out.push(objects);
    const p = new PassThrough(); p.write("one "); p.end("two"); out.push((await require("stream/consumers").text(p)));
    const order = []; const q = new Readable({ read() {} }); q.on("data", () => order.push("data")).on("end", () => order.push("end")).on("close", () => order.push("close")); q.push("x"); q.push(null); await new Promise((resolve) => q.on("close", resolve)); out.push(order);
    return out;
  },
  readline: async (require) => { const readline = require("readline"); const { Readable } = require("stream"); const lines = []; for await (const line of readline.createInterface({ input: Readable.from(["a\nb", "c\r\nd\n", "tail"]) })) lines.push(line); const rl = readline.createInterface({ input: Readable.from(["x\ny\n"]) }); const seen = []; rl.on("line", (line) => seen.push(line)); await new Promise((resolve) => rl.on("close", resolve)); return [lines, seen]; },
  webStreams: async () => { const s = new ReadableStream({ start(c) { c.enqueue("a"); c.enqueue("b"); c.close(); } }); const [x, y] = s.tee(); const read = async (stream) => { const parts = []; for await (const one of stream) parts.push(one); return parts; }; const t = new TransformStream({ transform(chunk, c) { c.enqueue(chunk + "!"); } }); return [await read(x), await read(y.pipeThrough(t)), await read(ReadableStream.from(["q"])), await read(new Blob(["é"]).stream().pipeThrough(new TextDecoderStream()))]; },
  abort: async () => { const c = new AbortController(); const seen = []; c.signal.addEventListener("abort", () => seen.push("abort")); c.abort(new Error("why")); c.abort(); return [seen, c.signal.aborted, c.signal.reason.message, fails(() => c.signal.throwIfAborted()).message, AbortSignal.abort().reason.name, AbortSignal.any([c.signal]).aborted, await new Promise((resolve) => { const t = AbortSignal.timeout(5); t.onabort = () => resolve(t.reason.name); }), (() => { const e = new EventTarget(); const got = []; e.addEventListener("x", (event) => got.push(event.type, event.detail), { once: true }); e.dispatchEvent(new CustomEvent("x", { detail: 1 })); e.dispatchEvent(new CustomEvent("x")); return got; })()]; },
  clone: () => { const source = { d: new Date(1), m: new Map([[1, { a: 1 }]]), s: new Set([1]), r: /x/gi, a: [1, , 2], n: null, u: new Uint8Array([1, 2]), e: new RangeError("bad") }; source.self = source; const copy = structuredClone(source); return [copy.self === copy, copy.d.getTime(), copy.m.get(1), [...copy.s], copy.r.flags, 1 in copy.a, copy.u.length, copy.e.name, copy.e.message, fails(() => structuredClone(() => 1)).name, fails(() => structuredClone({ a: Symbol("x") })).name]; },
  headers: () => { const h = new Headers({ "Content-Type": "a", X: "1" }); h.append("x", "2"); h.append("Set-Cookie", "a=1"); h.append("Set-Cookie", "b=2"); return [[...h], h.get("X"), h.has("none"), h.getSetCookie(), fails(() => h.set("bad name", "x")).name, fails(() => h.set("a", "b\nc")).name, [...new Headers([["a", "b"]])]]; },
  responses: async () => { const r = new Response('{"a":1}', { status: 201, headers: { "x-y": "z" } }); const c = r.clone(); const f = new FormData(); f.append("a", "1"); f.append("f", new File(["data"], "n.txt", { type: "text/plain" })); const q = new Request("http://x/y", { method: "post", body: new URLSearchParams({ a: "b c" }) }); return [r.ok, r.status, await r.json(), await c.text(), r.bodyUsed, (await failsLater(() => r.text())).name, [...r.headers], await Response.json({ b: 2 }).text(), q.method, q.url, await q.text(), q.headers.get("content-type"), await new Response(new Uint8Array([104, 105])).text(), (await new Response("é").arrayBuffer()).byteLength, f.get("a"), f.get("f").name, await f.get("f").text(), (await new Response(f).text()).includes('name="f"; filename="n.txt"'), fails(() => new Request("http://x", { body: "x" })).name, new Blob(["ab", new Uint8Array([99])]).size, await new Blob(["abc"]).slice(1, 2).text()]; },
  fetch: async (require, _dir, server) => {
    const plain = await fetch(server + "/echo?x=1", { method: "POST", body: "päyload", headers: { "X-Test": "1" } });
    const json = await (await fetch(server + "/json")).json();
    const parts = []; for await (const one of (await fetch(server + "/big")).body) parts.push(one.length);
    const control = new AbortController(); setTimeout(() => control.abort(), 30);
    const moved = await fetch(server + "/moved");
    return [plain.status, await plain.text(), plain.headers.get("content-type"), json, parts.reduce((a, b) => a + b, 0), (await failsLater(() => fetch(server + "/hang", { signal: control.signal }))).name, (await failsLater(() => fetch("http://127.0.0.1:1/"))).message, moved.redirected, moved.url.replace(server, ""), (await fetch(server + "/moved", { redirect: "manual" })).status, (await fetch(server + "/missing")).ok, await (await fetch("data:text/plain;base64,aGk=")).text(), (await failsLater(() => fetch("nope"))).name, (await fetch(server + "/json", { method: "HEAD" })).status];
  },
  http: async (require, _dir, server) => {
    const http = require("http");
    const get = (url, options = {}) => new Promise((resolve, reject) => http.get(...(typeof url === "string" ? [url, options] : [url]), (response) => { let text = ""; response.setEncoding("utf8"); response.on("data", (one) => (text += one)); response.on("end", () => resolve([response.statusCode, response.statusMessage, response.headers["content-type"], text])); }).on("error", reject));
    const post = await new Promise((resolve, reject) => { const request = http.request(server + "/echo", { method: "POST", headers: { "Content-Type": "text/x" } }, (response) => { const parts = []; response.on("data", (one) => parts.push(one)); response.on("end", () => resolve(Buffer.concat(parts).toString())); }); request.on("error", reject); request.end("one two"); });
    const { hostname, port } = new URL(server);
    return [await get(server + "/json"), post, await get({ hostname, port, path: "/json" }), (await failsLater(() => get("http://127.0.0.1:1/"))).code, (await get(server + "/moved"))[0], http.STATUS_CODES[404]];
  },
  intl: () => {
    const n = (value, options) => new Intl.NumberFormat("en-US", options).format(value);
    const day = new Date(Date.UTC(2024, 1, 5, 15, 4, 9));
    const d = (options) => new Intl.DateTimeFormat("en-US", { timeZone: "UTC", ...options }).format(day);
    return [n(1234567.891), n(0.5, { style: "percent" }), n(1234.5, { style: "currency", currency: "USD" }), n(12, { minimumIntegerDigits: 3 }), n(1.005, { maximumFractionDigits: 2 }), n(1234, { notation: "compact" }), n(1500000, { notation: "compact" }), n(999999, { notation: "compact" }), n(12, { notation: "compact" }), n(-5), n(0.000001), n(1e21), n(NaN), n(Infinity), n(1234.5678, { maximumSignificantDigits: 3 }), n(5, { minimumFractionDigits: 2 }), n(1234, { useGrouping: false }), n(5, { signDisplay: "always" }), (1234567).toLocaleString(), (1234.5).toLocaleString("en-US", { maximumFractionDigits: 0 }), (12345678901234567890n).toLocaleString("en-US"), d(), d({ dateStyle: "medium" }), d({ dateStyle: "full", timeStyle: "short" }), d({ year: "numeric", month: "long", day: "numeric" }), d({ month: "short", day: "numeric" }), d({ hour: "2-digit", minute: "2-digit" }), d({ hour: "2-digit", minute: "2-digit", hour12: false }), d({ weekday: "short" }), d({ weekday: "long", month: "long", day: "numeric" }), d({ month: "2-digit", day: "2-digit", year: "numeric" }), d({ hour: "numeric", minute: "2-digit", second: "2-digit" }), d({ timeStyle: "medium" }), d({ year: "2-digit", month: "numeric", day: "numeric", hour: "numeric", minute: "2-digit" }), day.toLocaleDateString("en-US", { timeZone: "UTC" }), day.toLocaleTimeString("en-US", { timeZone: "UTC" }), day.toLocaleString("en-US", { timeZone: "UTC" }), day.toLocaleDateString("en-GB", { timeZone: "UTC" }), day.toLocaleString("en-US", { timeZone: "America/New_York" }), day.toLocaleTimeString("en-US", { timeZone: "Asia/Kolkata", hour: "2-digit", minute: "2-digit" }), day.toLocaleDateString("en-CA", { timeZone: "UTC" }), ["b", "a", "B", "A", "ä", "10", "2", "_", "z"].sort(new Intl.Collator("en").compare), ["a10", "a2", "a1"].sort(new Intl.Collator(undefined, { numeric: true }).compare), ["b", "A", "a", "C"].sort((x, y) => x.localeCompare(y)), "a".localeCompare("A", undefined, { sensitivity: "base" }), "resume".localeCompare("résumé"), [...new Intl.Segmenter("en").segment("a👨‍👩‍👧é🇩🇪x")].map((one) => one.segment), new Intl.PluralRules("en").select(1), [1, 2, 3, 4, 11, 12, 21, 22].map((value) => new Intl.PluralRules("en", { type: "ordinal" }).select(value)), new Intl.RelativeTimeFormat("en").format(-3, "day"), new Intl.RelativeTimeFormat("en", { numeric: "auto" }).format(1, "day"), new Intl.RelativeTimeFormat("en").format(1, "hours"), new Intl.ListFormat("en").format(["a", "b", "c"]), new Intl.ListFormat("en", { type: "disjunction" }).format(["a", "b"]), fails(() => new Intl.NumberFormat("en", { style: "currency" })).name, typeof Intl.DateTimeFormat().resolvedOptions().timeZone];
  },
  timers: async (require) => { const order = []; setTimeout(() => order.push("timeout"), 0); setImmediate(() => order.push("immediate")); queueMicrotask(() => order.push("micro")); process.nextTick(() => order.push("tick")); Promise.resolve().then(() => order.push("promise")); await new Promise((resolve) => setTimeout(resolve, 20)); const interval = []; await new Promise((resolve) => { const id = setInterval(() => { interval.push(1); if (interval.length === 3) { clearInterval(id); resolve(); } }, 1); }); return [order.filter((one) => one !== "immediate" && one !== "timeout").sort(), interval.length, await require("timers/promises").setTimeout(1, "v"), await require("util").promisify(setTimeout)(1, "w")]; },
  process: (require) => [typeof process.version, process.argv.length > 0, typeof process.pid, typeof process.hrtime.bigint(), process.platform, typeof process.uptime(), process.env.NOT_THERE_AT_ALL, (process.env.MY_OWN = "1", process.env.MY_OWN), "MY_OWN" in process.env, (delete process.env.MY_OWN, process.env.MY_OWN), typeof process.memoryUsage().rss, typeof process.stdout.write, require("os").EOL, typeof require("os").homedir(), require("os").platform(), Object.keys(process.env).includes("PATH"), process.exitCode],
  module: (require) => { const { createRequire, isBuiltin } = require("module"); const r = createRequire("/x/y.js"); return [typeof r("path").join, r("node:fs") === require("fs"), fails(() => r("no-such-package-anywhere")).code, isBuiltin("fs"), isBuiltin("node:fs/promises"), isBuiltin("nope"), r.resolve("path")]; },
  fetchCopies: async (require, dir, server) => {
    const first = await fetch(server + "/json");
    const second = first.clone();
    const third = second.clone();
    const read = [await second.text(), await first.json(), await third.text()];
    const big = await fetch(server + "/big");
    const [left, right] = big.body.tee();
    const locked = [big.bodyUsed, big.body.locked, await failsLater(() => big.text()), fails(() => big.clone()).name];
    const sizes = [(await new Response(right).arrayBuffer()).byteLength, (await new Response(left).text()).length];
    const used = await fetch(server + "/json");
    await used.text();
    const one = await fetch(server + "/big");
    const other = one.clone();
    let length = 0;
    for await (const chunk of other.body) length += chunk.length;
    const streamed = [length, (await one.bytes?.() ?? new Uint8Array(await one.arrayBuffer())).length];
    const kept = await fetch(server + "/big");
    const copy = kept.clone();
    void copy.body.cancel();
    const [a, b] = new Response("abc").body.tee();
    const parts = [(await a.getReader().read()).value, (await b.getReader().read()).value];
    parts[0][0] = 90;
    return [read, second.url === first.url, second.status, second.ok, second.type, second.headers.get("content-type"), first.bodyUsed, second.bodyUsed, locked, sizes, fails(() => used.clone()).name, streamed, (await kept.text()).length, new TextDecoder().decode(parts[1]), second instanceof Response, second.redirected];
  },
  pathWin32: (require) => {
    const { win32 } = require("path");
    const samples = ["", ".", "..", "\\", "/", "C:", "C:\\", "C:/", "c:a", "C:\\a\\b\\", "C:/a/../b", "..\\..\\a", "\\a", "a\\b.txt", "a/b\\c.tar.gz", "\\\\server\\share\\file", "\\\\server\\share", "//server/share/a/..", "\\\\server", ".bashrc", "a.", "D:\\x\\..\\..", "C:..\\a", "a b\\ c", "C:\\a\\b.txt\\"];
    const rest = samples.filter((one) => one !== "" && !/^[A-Za-z]:([^\\/]|$)/.test(one));
    return samples.map((one) => [win32.normalize(one), win32.dirname(one), win32.basename(one), win32.basename(one, ".txt"), win32.extname(one), win32.isAbsolute(one), win32.parse(one), win32.format(win32.parse(one)), win32.toNamespacedPath("C:\\base\\" + one), samples.filter((two) => one === "" || !two.includes(":")).map((two) => win32.join(one, two)), win32.resolve("C:\\base", one), rest.map((two) => [win32.resolve("C:\\base\\x", one.replace(/^[A-Za-z]:(?![\\/])/, ""), two), win32.relative("C:\\Base\\" + one.replace(/[:\\/]/g, "_"), "c:\\base\\" + two.replace(/[:\\/]/g, "_"))])]).concat([[win32.sep, win32.delimiter, win32.win32 === win32, win32.posix === require("path").posix, require("path/win32") === win32, fails(() => win32.join(1)), fails(() => win32.relative("a")), Object.keys(win32).filter((name) => name[0] !== "_").sort().join()]]);
  },
  abortOrder: async () => {
    const seen = [];
    const controller = new AbortController();
    const { signal } = controller;
    signal.addEventListener("abort", () => seen.push("first"));
    signal.onabort = () => seen.push("on");
    signal.addEventListener("abort", () => seen.push("second"), { once: true });
    const joined = AbortSignal.any([signal, new AbortController().signal]);
    joined.addEventListener("abort", () => seen.push("any"));
    const nested = AbortSignal.any([joined]);
    nested.onabort = (event) => seen.push("nested " + event.type + " " + (event.target === nested) + " " + event.isTrusted);
    signal.addEventListener("abort", () => seen.push("late"));
    signal.addEventListener("abort", { handleEvent: (event) => { seen.push("object " + event.eventPhase); event.stopImmediatePropagation(); } });
    signal.addEventListener("abort", () => seen.push("never"));
    const removed = () => seen.push("removed");
    signal.addEventListener("abort", removed);
    signal.removeEventListener("abort", removed);
    const pending = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    controller.abort("gone");
    seen.push("after");
    controller.abort("again");
    signal.addEventListener("abort", () => seen.push("too late"));
    const already = AbortSignal.any([AbortSignal.abort("x"), signal]);
    const replaced = new AbortController();
    replaced.signal.onabort = () => seen.push("old");
    replaced.signal.addEventListener("abort", () => seen.push("between"));
    replaced.signal.onabort = () => seen.push("new");
    replaced.abort();
    void pending.catch(() => undefined);
    return [seen, signal.reason, joined.reason, nested.aborted, already.reason, replaced.signal.reason.name, replaced.signal.reason.code, String(new AbortController().signal), Object.prototype.toString.call(controller)];
  },
  abortFetch: async (require, dir, server) => {
    const seen = [];
    const controller = new AbortController();
    controller.signal.addEventListener("abort", () => seen.push("listener"));
    const asked = fetch(server + "/hang", { signal: controller.signal }).catch((error) => seen.push("rejected " + error.name));
    Promise.resolve().then(() => seen.push("micro"));
    controller.abort();
    seen.push("sync");
    await asked;
    return seen;
  },
  requireResolve: (require) => {
    const r = require("module").createRequire("/x/y.js");
    const found = fails(() => r.resolve("no-such-package-anywhere"));
    return [r.resolve("fs"), r.resolve("node:fs"), r.resolve("node:path/posix"), found.code, found.message.split("\n")[0], fails(() => r.resolve("./not-there.js")).code, typeof r.resolve.paths, r.resolve.paths("fs"), fails(() => r.resolve(1)).code, typeof r.cache, typeof r.main, r.name];
  },
  memory: () => {
    const { rss, heapTotal, heapUsed, external, arrayBuffers } = process.memoryUsage();
    return [[rss, heapTotal, heapUsed].every((bytes) => Number.isInteger(bytes) && bytes > 65536), heapUsed <= heapTotal, heapTotal <= rss, [external, arrayBuffers].every(Number.isInteger), process.memoryUsage.rss() > 65536, Object.keys(process.memoryUsage()), typeof process.cpuUsage().user, typeof process.resourceUsage().maxRSS];
  },
  performance: async () => {
    const one = performance.now();
    await new Promise((resolve) => setTimeout(resolve, 5));
    const two = performance.now();
    const drift = performance.timeOrigin + performance.now() - Date.now();
    const before = process.hrtime();
    const large = process.hrtime.bigint();
    await new Promise((resolve) => setTimeout(resolve, 2));
    const [seconds, nanoseconds] = process.hrtime(before);
    performance.mark("a");
    const measured = performance.measure("a to now", "a");
    return [one > 0, two - one >= 4, two - one < 5000, Math.abs(drift) < 1000, process.uptime() > 0, seconds === 0, nanoseconds > 1e6, process.hrtime.bigint() - large > 1000000n, measured.startTime > 0, measured.duration >= 0, typeof performance.toJSON().timeOrigin, String(performance)];
  },
  aggregate: async (require) => {
    const { inspect } = require("util");
    const any = await Promise.any([Promise.reject(new Error("a")), Promise.reject(new TypeError("b"))]).catch((error) => error);
    const made = new AggregateError([new Error("x"), 3], "several", { cause: "c" });
    const empty = await Promise.any([]).catch((error) => error);
    return [any.name, any.message, String(any), any.errors.map(String), any instanceof Error, String(made), made.errors.length, made.cause, empty.message, empty.errors, inspect(any).split("\n")[0], any.stack.split("\n")[0], Object.keys(made), inspect(made).includes("[errors]:"), inspect(made).includes("[cause]: 'c'")];
  },
  tickOrder: async () => {
    const order = [];
    await new Promise((resolve) => setTimeout(resolve, 1));
    queueMicrotask(() => order.push("micro 1"));
    process.nextTick((...args) => { order.push("tick " + args); process.nextTick(() => order.push("inner tick")); queueMicrotask(() => order.push("inner micro")); }, 1, 2);
    Promise.resolve().then(() => { order.push("promise"); process.nextTick(() => order.push("tick of promise")); }).then(() => order.push("promise 2"));
    process.nextTick(() => order.push("tick 2"));
    order.push("sync");
    await new Promise((resolve) => setTimeout(resolve, 5));
    const timer = [];
    setTimeout(() => { process.nextTick(() => timer.push("tick")); Promise.resolve().then(() => timer.push("promise")); timer.push("timer"); }, 0);
    await new Promise((resolve) => setTimeout(resolve, 10));
    return [order, timer, fails(() => process.nextTick(3)).code];
  },
  unref: async () => {
    const seen = [];
    const timer = setTimeout(() => seen.push("unref still runs"), 1);
    const states = [timer.hasRef(), timer.unref() === timer, timer.hasRef(), timer.ref().hasRef()];
    timer.unref();
    const interval = setInterval(() => seen.push("interval"), 1).unref();
    const immediate = setImmediate(() => seen.push("immediate"));
    states.push(interval.hasRef(), immediate.hasRef(), immediate.unref() === immediate, immediate.hasRef(), typeof immediate.refresh, typeof timer.refresh);
    await new Promise((resolve) => setTimeout(resolve, 15));
    clearInterval(interval);
    const gone = setTimeout(() => undefined, 1000);
    clearTimeout(gone);
    states.push(gone.hasRef(), timer.hasRef());
    return [states, seen.includes("unref still runs"), seen.includes("interval"), timer[Symbol.toPrimitive]() > 0, typeof timer.close];
  },
  missingProgram: async (require) => {
    const cp = require("child_process");
    const sync = cp.spawnSync("no-such-program-at-all", ["x"]);
    const events = [];
    const child = cp.spawn("no-such-program-at-all", ["x"]);
    await new Promise((resolve) => { child.on("error", (error) => events.push(["error", error.code, error.message, error.path, error.syscall, error.spawnargs])); child.on("exit", () => events.push("exit")); child.on("close", (code) => { events.push(["close", code]); resolve(); }); });
    const called = await new Promise((resolve) => cp.execFile("no-such-program-at-all", (error, stdout, stderr) => resolve([error.code, error.message, error.killed, stdout, stderr])));
    const shell = await new Promise((resolve) => cp.exec("no-such-program-at-all 2>/dev/null", (error, stdout, stderr) => resolve([error.code, error.killed, error.signal, error.cmd, stdout, stderr])));
    const controller = new AbortController();
    const aborted = new Promise((resolve) => { const late = cp.spawn("sleep", ["5"], { signal: controller.signal }); const told = []; late.on("error", (error) => told.push([error.name, error.code, error.message])); late.on("exit", (code, signal) => told.push(["exit", code, signal])); late.on("close", (code, signal) => resolve([...told, ["close", code, signal], late.killed, late.exitCode, late.signalCode])); });
    controller.abort();
    const timed = cp.spawnSync("sleep", ["5"], { timeout: 50 });
    const killed = await new Promise((resolve) => cp.execFile("sleep", ["5"], { timeout: 50 }, (error) => resolve([error.code, error.killed, error.signal, error.message])));
    return [sync.status, sync.signal, sync.stdout, sync.stderr, sync.error?.code, sync.error?.message, sync.pid, events, child.pid, child.exitCode, called, shell, await aborted, [timed.status, timed.signal, timed.error?.code, timed.error?.message], killed];
  },
  channels: async (require) => {
    const dc = require("diagnostics_channel");
    const { AsyncLocalStorage } = require("async_hooks");
    const seen = [];
    const one = dc.channel("one");
    const hear = (message, name) => seen.push([name, message]);
    const before = [one.hasSubscribers, dc.hasSubscribers("one")];
    dc.subscribe("one", hear);
    one.publish({ a: 1 });
    const during = [one.hasSubscribers, dc.hasSubscribers("one"), dc.channel("one") === one, one.name];
    const gone = [dc.unsubscribe("one", hear), dc.unsubscribe("one", hear)];
    one.publish("unheard");
    const tracing = dc.tracingChannel("work");
    const quiet = [tracing.traceSync((x) => x + 1, {}, undefined, 1), await tracing.tracePromise(async () => 2)];
    const handlers = {};
    for (const name of ["start", "end", "asyncStart", "asyncEnd", "error"]) handlers[name] = (context) => seen.push([name, context.result ?? context.error?.message ?? null, context.tag]);
    tracing.subscribe(handlers);
    const values = [tracing.traceSync(function (x) { return this.base + x; }, { tag: "s" }, { base: 1 }, 2), fails(() => tracing.traceSync(() => { throw new Error("sync"); }, { tag: "e" })).message];
    values.push(await tracing.tracePromise(async () => "later", { tag: "p" }), (await failsLater(() => tracing.tracePromise(async () => { throw new Error("async"); }, { tag: "r" }))).message);
    values.push(await new Promise((resolve) => tracing.traceCallback((x, done) => setTimeout(() => done(null, x), 1), -1, { tag: "c" }, null, 5, (_, x) => resolve(x))));
    const store = new AsyncLocalStorage();
    one.bindStore(store, (data) => data.id);
    values.push(one.runStores({ id: 7 }, function (x) { return [store.getStore(), this.me, x]; }, { me: "self" }, "arg"), one.unbindStore(store));
    return [before, during, gone, quiet, values, seen, tracing.unsubscribe(handlers), fails(() => dc.channel(1)).code, fails(() => one.subscribe(1)).code, tracing.start.name];
  },
  emitters: (require) => {
    const { EventEmitter } = require("events");
    const seen = [];
    class Own extends EventEmitter {
      on(name, call) { seen.push(["on", name]); return super.on(name, call); }
      addListener(name, call) { return this.on(name, call); }
      off(name, call) { seen.push(["off", name]); return super.off(name, call); }
      removeListener(name, call) { return this.off(name, call); }
      prependListener(name, call) { seen.push(["prepend", name]); return super.prependListener(name, call); }
    }
    const own = new Own();
    own.once("a", (x) => seen.push(["once", x]));
    own.prependOnceListener("a", (x) => seen.push(["first", x]));
    own.emit("a", 1);
    own.emit("a", 2);
    const again = new EventEmitter();
    again.once("b", () => { seen.push("b"); again.emit("b"); });
    again.emit("b");
    const watched = new EventEmitter();
    const gone = () => undefined;
    watched.on("removeListener", (name, call) => seen.push(["gone", name, call === gone]));
    watched.on("x", () => undefined);
    watched.once("x", gone);
    watched.on("y", gone);
    watched.removeAllListeners("x");
    watched.removeAllListeners();
    return [seen, own.listenerCount("a"), EventEmitter.prototype.on === EventEmitter.prototype.addListener, EventEmitter.prototype.off === EventEmitter.prototype.removeListener, watched.eventNames()];
  },
  inherited: async (require) => {
    const { inherits } = require("util");
    const { EventEmitter } = require("events");
    const stream = require("stream");
    const http = require("http");
    const https = require("https");
    const made = {};
    const old = (name, Base, ...args) => { function Old() { if (!(this instanceof Old)) return new Old(); Base.call(this, ...args); this.mine = 1; } inherits(Old, Base); made[name] = new Old(); return Old; };
    old("emitter", EventEmitter);
    const Readable = old("readable", stream.Readable, { objectMode: true });
    Readable.prototype._read = function () { this.push(this.mine > 2 ? null : this.mine++); };
    const Transform = old("transform", stream.Transform);
    Transform.prototype._transform = function (chunk, _encoding, done) { done(null, chunk.toString().toUpperCase()); };
    old("writable", stream.Writable, { write(chunk, _encoding, done) { made.written = chunk.toString(); done(); } });
    old("duplex", stream.Duplex, { read() { this.push(null); }, write(_chunk, _encoding, done) { done(); } });
    old("stream", stream);
    old("agent", http.Agent, { keepAlive: true, maxSockets: 3 });
    const heard = [];
    made.emitter.on("x", (value) => heard.push(value));
    made.emitter.emit("x", 1);
    const read = [];
    for await (const one of made.readable) read.push(one);
    made.transform.end("abc");
    let upper = "";
    for await (const one of made.transform) upper += one;
    made.writable.end("w");
    await new Promise((resolve) => made.writable.on("finish", resolve));
    const plain = stream.Readable({ read() {} });
    const agent = http.Agent({ keepAlive: true });
    const secure = new https.Agent();
    return [heard, read, upper, made.written, made.duplex instanceof stream.Writable, made.duplex instanceof stream.Readable, made.stream instanceof EventEmitter, plain instanceof stream.Readable, Object.keys(made).map((name) => made[name].mine ?? null), agent instanceof EventEmitter, agent instanceof http.Agent, secure instanceof http.Agent, agent.keepAlive, agent.maxSockets === Infinity, made.agent.maxSockets, agent.maxFreeSockets, agent.defaultPort, agent.protocol, secure.defaultPort, secure.protocol, http.globalAgent.defaultPort, https.globalAgent.protocol, agent.getName({ host: "h", port: 1 }), secure.getName({ host: "h", port: 1, servername: "s" }), Object.keys(agent.sockets), Object.keys(agent.requests), Object.keys(agent.freeSockets), agent.totalSocketCount, typeof agent.createConnection, typeof agent.keepSocketAlive, typeof agent.addRequest, agent.destroy()];
  },
};
