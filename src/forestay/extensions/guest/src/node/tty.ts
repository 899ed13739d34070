// node:tty: an extension has no terminal.

import { defineNode } from "./define";

defineNode("tty", { isatty: () => false, ReadStream: class ReadStream {}, WriteStream: class WriteStream {} });
