// node:punycode.

import { punycode } from "../globals/url";
import { defineNode } from "./define";

defineNode("punycode", { toASCII: (name: string) => name.split(".").map(punycode).join("."), encode: (text: string) => punycode(text).replace(/^xn--/, ""), ucs2: { decode: (text: string) => [...text].map((one) => one.codePointAt(0)), encode: (points: number[]) => String.fromCodePoint(...points) } });
