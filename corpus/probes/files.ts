// The file system, synchronous and not: what is read, what is written, and which errors come.
import * as fs from "node:fs";
import { appendFile, mkdir, readFile, readdir, rename, rm, stat, unlink, writeFile } from "node:fs/promises";
import { basename, dirname, extname, join, relative, resolve } from "node:path";

const attempt = (work: () => any) => {
  try {
    return work();
  } catch (error: any) {
    return [error.code, error.syscall];
  }
};

export default function (pi: any) {
  pi.registerTool({
    name: "files", label: "Files", description: "Uses files", parameters: { type: "object", properties: {} },
    async execute(_id: string, _params: any, _signal: any, _update: any, ctx: any) {
      const at = (name: string) => join(ctx.cwd, name);
      const said: any = {};
      said.exists = [fs.existsSync(at("a.txt")), fs.existsSync(at("none"))];
      said.text = fs.readFileSync(at("a.txt"), "utf-8");
      said.bytes = fs.readFileSync(at("a.txt")).length;
      said.list = fs.readdirSync(ctx.cwd).sort();
      said.types = fs.readdirSync(ctx.cwd, { withFileTypes: true }).map((entry) => [entry.name, entry.isDirectory()]).sort();
      said.stat = [fs.statSync(at("a.txt")).size, fs.statSync(at("d")).isDirectory()];
      said.missing = attempt(() => fs.readFileSync(at("none"), "utf-8"));
      said.directory = attempt(() => fs.readFileSync(at("d"), "utf-8"));
      said.again = attempt(() => fs.mkdirSync(at("d")));
      fs.mkdirSync(at("x/y/z"), { recursive: true });
      fs.writeFileSync(at("x/y/z/w.txt"), "written");
      fs.appendFileSync(at("x/y/z/w.txt"), " twice");
      fs.copyFileSync(at("a.txt"), at("copy.txt"));
      fs.renameSync(at("copy.txt"), at("moved.txt"));
      await mkdir(at("p"), { recursive: true });
      await writeFile(at("p/a.json"), JSON.stringify({ a: 1 }));
      await appendFile(at("p/a.json"), "\n");
      said.json = JSON.parse(await readFile(at("p/a.json"), "utf8"));
      await rename(at("p/a.json"), at("p/b.json"));
      said.promised = (await readdir(at("p"))).sort();
      said.size = (await stat(at("p/b.json"))).size;
      said.rejected = await readFile(at("none")).catch((error) => [error.code, error.message.startsWith("ENOENT: no such file")]);
      await unlink(at("moved.txt"));
      await rm(at("d"), { recursive: true, force: true });
      said.path = [basename("/a/b.txt"), dirname("/a/b.txt"), extname("b.tar.gz"), relative("/a/b", "/a/c/d"), resolve("/a", "../b")];
      return { content: [{ type: "text", text: JSON.stringify(said) }], details: said };
    },
  });
}
