// Intl for English and the C locale: the parts that extensions use for numbers, dates, lists and plurals.

import { hostCallSync } from "../bridge";
import { install } from "./install";

const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const SYMBOLS: Record<string, string> = { USD: "$", EUR: "€", GBP: "£", JPY: "¥", INR: "₹", CNY: "CN¥", KRW: "₩", BRL: "R$", CAD: "CA$", AUD: "A$", MXN: "MX$", NZD: "NZ$", ILS: "₪", VND: "₫" };
const NO_CENTS = new Set(["JPY", "KRW", "VND"]);

const locale = (wanted: any): string => {
  const first = Array.isArray(wanted) ? wanted[0] : wanted;
  if (first === undefined) return "en-US";
  if (typeof first !== "string" && typeof first !== "object") throw new TypeError("Incorrect locale information provided");
  if (!/^[a-zA-Z]{2,8}([-_][a-zA-Z0-9]{1,8})*$/.test(String(first))) throw new RangeError(`Incorrect locale information provided`);
  return /^en/i.test(String(first)) ? String(first) : "en-US";
};

export class NumberFormat {
  #o: any;
  format: (value: any) => string;
  constructor(locales?: any, options: any = {}) {
    const style = options.style ?? "decimal";
    const currency = options.currency?.toUpperCase();
    if (style === "currency" && !currency) throw new TypeError("Currency code is required with currency style.");
    const compact = options.notation === "compact";
    const money = style === "currency" ? (NO_CENTS.has(currency) ? 0 : 2) : undefined;
    const least = options.minimumFractionDigits ?? (compact ? 0 : money ?? 0);
    const usual = compact ? 0 : money ?? (style === "percent" ? 0 : 3);
    const most = options.maximumFractionDigits ?? Math.max(least, usual);
    if (!(least >= 0 && least <= 100)) throw new RangeError("minimumFractionDigits value is out of range.");
    if (!(most >= 0 && most <= 100)) throw new RangeError("maximumFractionDigits value is out of range.");
    this.#o = { locale: locale(locales), style, currency, compact, least: Math.min(least, most), most, minimumIntegerDigits: options.minimumIntegerDigits ?? 1, significant: options.maximumSignificantDigits, leastSignificant: options.minimumSignificantDigits ?? 1, grouping: options.useGrouping !== false && options.useGrouping !== "false", sign: options.signDisplay ?? "auto", unit: options.unit, unitDisplay: options.unitDisplay ?? "short", long: options.compactDisplay === "long", currencyDisplay: options.currencyDisplay ?? "symbol", given: options.maximumFractionDigits !== undefined || options.minimumFractionDigits !== undefined };
    this.format = (value: any) => this.#format(value);
  }
  #format(input: any): string {
    const o = this.#o;
    if (typeof input === "bigint") return this.#dress(input < 0n, this.#group((input < 0n ? -input : input).toString()), "");
    let value = Number(input);
    if (Number.isNaN(value)) return "NaN";
    const negative = value < 0 || Object.is(value, -0);
    value = Math.abs(value);
    if (value === Infinity) return this.#dress(negative, "∞", "");
    if (o.style === "percent") value *= 100;
    let suffix = "";
    if (o.compact) {
      const steps: [number, string, string][] = [[1e12, "T", " trillion"], [1e9, "B", " billion"], [1e6, "M", " million"], [1e3, "K", " thousand"]];
      for (const [size, short, long] of steps) {
        if (value >= size * 0.9995) {
          value /= size;
          suffix = o.long ? long : short;
          break;
        }
      }
    }
    let text: string;
    if (o.significant !== undefined) text = trimmed(significant(value, o.significant), o.leastSignificant);
    else if (o.compact && !o.given) text = value < 100 ? trimmed(significant(value, 2), 1) : round(value, 0);
    else text = this.#fraction(value);
    const [whole, part] = text.split(".");
    const shown = this.#group(whole.padStart(o.minimumIntegerDigits, "0")) + (part ? "." + part : "");
    return this.#dress(negative && /[1-9]/.test(text) || (negative && o.sign === "negative" && false), shown, suffix, negative);
  }
  #fraction(value: number): string {
    const text = round(value, this.#o.most);
    const [whole, part = ""] = text.split(".");
    let kept = part.replace(/0+$/, "");
    if (kept.length < this.#o.least) kept = kept.padEnd(this.#o.least, "0");
    return kept ? `${whole}.${kept}` : whole;
  }
  #group(whole: string): string { return this.#o.grouping ? whole.replace(/\B(?=(\d{3})+$)/g, ",") : whole; }
  #dress(negative: boolean, text: string, suffix: string, minusZero = negative): string {
    const o = this.#o;
    text += suffix;
    if (o.style === "percent") text += "%";
    if (o.style === "currency") {
      text = o.currencyDisplay === "code" ? `${o.currency} ${text}` : o.currencyDisplay === "name" ? `${text} ${o.currency}` : symbol(o) + text;
    }
    if (o.style === "unit") text += unit(o, text);
    const zero = !/[1-9∞]/.test(text);
    const sign = o.sign === "never" ? "" : negative || (minusZero && zero && o.sign === "auto") ? "-" : o.sign === "always" || (o.sign === "exceptZero" && !zero) ? "+" : "";
    return sign + text;
  }
  formatToParts(value: any): any[] {
    return [...this.format(value).matchAll(/([-+])|(\d+)|(,)|(\.)|(%)|([^-+\d,.%]+)/g)].map((found, index, all) => {
      const type = found[1] ? (found[1] === "-" ? "minusSign" : "plusSign") : found[3] ? "group" : found[4] ? "decimal" : found[5] ? "percentSign" : found[6] ? (this.#o.style === "currency" ? "currency" : "literal") : all.slice(0, index).some((one) => one[4]) ? "fraction" : "integer";
      return { type, value: found[0] };
    });
  }
  resolvedOptions(): any { return { locale: this.#o.locale, numberingSystem: "latn", style: this.#o.style, currency: this.#o.currency, minimumFractionDigits: this.#o.least, maximumFractionDigits: this.#o.most, useGrouping: this.#o.grouping ? "auto" : false, notation: this.#o.compact ? "compact" : "standard" }; }
  static supportedLocalesOf(list: any): string[] { return (Array.isArray(list) ? list : [list]).filter((name) => /^en/i.test(name)); }
}

const symbol = (o: any): string => {
  const found = SYMBOLS[o.currency];
  return found === undefined ? o.currency + " " : o.currencyDisplay === "narrowSymbol" ? found.replace(/^[A-Z]+/, "") : found;
};

function unit(o: any, text: string): string {
  const one = text === "1";
  const names: Record<string, [string, string]> = { byte: ["byte", "byte"], kilobyte: ["kB", "kilobyte"], megabyte: ["MB", "megabyte"], gigabyte: ["GB", "gigabyte"], second: ["sec", "second"], minute: ["min", "minute"], hour: ["hr", "hour"], day: ["day", "day"], millisecond: ["ms", "millisecond"], percent: ["%", "percent"], kilometer: ["km", "kilometer"], celsius: ["°C", "degree Celsius"] };
  const [short, long] = names[o.unit] ?? [o.unit, o.unit];
  if (o.unitDisplay === "long") return ` ${long}${one ? "" : "s"}`;
  return (o.unit === "celsius" || o.unit === "percent" ? "" : " ") + short + (o.unit === "day" && !one ? "s" : "");
}

// Rounds half away from zero on the number's printed decimal digits, as ICU does by default.
function round(value: number, digits: number): string {
  if (value >= 1e21) return BigInt(Math.round(value)).toString();
  let text = String(value);
  if (text.includes("e")) text = value.toFixed(Math.min(100, digits + 10));
  const [whole, part = ""] = text.split(".");
  if (part.length <= digits) return text;
  let kept = BigInt(whole + part.slice(0, digits));
  if (part.charCodeAt(digits) >= 53) kept += 1n;
  const all = kept.toString().padStart(digits + 1, "0");
  return digits ? `${all.slice(0, -digits)}.${all.slice(-digits)}` : all;
}

function significant(value: number, digits: number): string {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(value)) + 1;
  const places = digits - size;
  return places >= 0 ? round(value, Math.min(100, places)) : String(Math.round(value / 10 ** -places) * 10 ** -places);
}

function trimmed(text: string, least: number): string {
  if (!text.includes(".")) return text;
  let out = text.replace(/\.?0+$/, "");
  while (out.replace(/^0*\.?0*|\./g, "").length < least) out += out.includes(".") ? "0" : ".0";
  return out;
}

interface Moment { year: number; month: number; day: number; weekday: number; hour: number; minute: number; second: number; ms: number }

const zones = new Map<string, Map<number, number>>();
function offset(zone: string, ms: number): number {
  const known = zones.get(zone) ?? new Map<number, number>();
  zones.set(zone, known);
  const hour = Math.floor(ms / 900_000);
  let found = known.get(hour);
  if (found === undefined) {
    try {
      found = hostCallSync("crypto", { op: "zone", zone, ms: hour * 900_000 }).value as number;
    } catch {
      throw new RangeError(`Invalid time zone specified: ${zone}`);
    }
    known.set(hour, found);
  }
  return found;
}

function momentOf(ms: number, zone: string | undefined): Moment {
  if (zone === undefined) {
    const d = new Date(ms);
    return { year: d.getFullYear(), month: d.getMonth(), day: d.getDate(), weekday: d.getDay(), hour: d.getHours(), minute: d.getMinutes(), second: d.getSeconds(), ms: d.getMilliseconds() };
  }
  const d = new Date(ms + (zone === "UTC" ? 0 : offset(zone, ms) * 60_000));
  return { year: d.getUTCFullYear(), month: d.getUTCMonth(), day: d.getUTCDate(), weekday: d.getUTCDay(), hour: d.getUTCHours(), minute: d.getUTCMinutes(), second: d.getUTCSeconds(), ms: d.getUTCMilliseconds() };
}

const STYLES: Record<string, any> = {
  "date-full": { weekday: "long", year: "numeric", month: "long", day: "numeric" }, "date-long": { year: "numeric", month: "long", day: "numeric" },
  "date-medium": { year: "numeric", month: "short", day: "numeric" }, "date-short": { year: "2-digit", month: "numeric", day: "numeric" },
  "time-full": { hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "long" }, "time-long": { hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "short" },
  "time-medium": { hour: "numeric", minute: "2-digit", second: "2-digit" }, "time-short": { hour: "numeric", minute: "2-digit" },
};
const two = (value: number): string => String(value).padStart(2, "0");

export class DateTimeFormat {
  #o: any;
  #zone: string | undefined;
  #locale: string;
  format: (value?: any) => string;
  constructor(locales?: any, options: any = {}, fallback: "date" | "time" | "any" = "date") {
    this.#locale = locale(locales);
    const o: any = { ...options };
    if (o.dateStyle || o.timeStyle) Object.assign(o, STYLES["date-" + o.dateStyle], STYLES["time-" + o.timeStyle]);
    const date = ["weekday", "year", "month", "day"].some((name) => o[name] !== undefined);
    const time = ["hour", "minute", "second", "fractionalSecondDigits", "dayPeriod"].some((name) => o[name] !== undefined);
    if (!date && !time) {
      if (fallback !== "time") Object.assign(o, { year: "numeric", month: "numeric", day: "numeric" });
      if (fallback !== "date") Object.assign(o, { hour: "numeric", minute: "2-digit", second: "2-digit" });
    } else if (fallback === "date" && !date && options.onlyDate) Object.assign(o, { year: "numeric", month: "numeric", day: "numeric" });
    this.#o = o;
    const zone = o.timeZone;
    this.#zone = zone === undefined ? undefined : /^(utc|gmt|etc\/utc|etc\/gmt)$/i.test(zone) ? "UTC" : String(zone);
    if (this.#zone !== undefined && this.#zone !== "UTC") offset(this.#zone, 0);
    this.format = (value?: any) => this.formatToParts(value).map((part) => part.value).join("");
  }
  formatToParts(value?: any): any[] {
    const ms = value === undefined ? Date.now() : Number(value);
    if (!Number.isFinite(ms)) throw new RangeError("Invalid time value");
    const m = momentOf(ms, this.#zone);
    const o = this.#o;
    const british = /^en-(GB|AU|NZ|IE|IN|ZA)/i.test(this.#locale);
    const iso = /^en-CA/i.test(this.#locale);
    const parts: any[] = [];
    const put = (type: string, text: string): void => void parts.push({ type, value: text });
    const lit = (text: string): void => { if (parts.length) put("literal", text); };
    const named = o.month === "long" || o.month === "short" || o.month === "narrow";
    const month = (): void => {
      const full = MONTHS[m.month];
      put("month", o.month === "long" ? full : o.month === "short" ? full.slice(0, 3) : o.month === "narrow" ? full[0] : o.month === "2-digit" || (british && o.year && o.day) ? two(m.month + 1) : String(m.month + 1));
    };
    const day = (): void => put("day", o.day === "2-digit" || (british && !named && o.month) ? two(m.day) : String(m.day));
    const year = (): void => put("year", o.year === "2-digit" ? two(m.year % 100) : String(m.year));
    if (o.weekday) put("weekday", o.weekday === "long" ? DAYS[m.weekday] : o.weekday === "narrow" ? DAYS[m.weekday][0] : DAYS[m.weekday].slice(0, 3));
    if (named) {
      if (british) {
        if (o.day) { lit(o.weekday ? (o.weekday === "long" && o.month === "long" ? " " : ", ") : ""); day(); }
        lit(" "); month();
        if (o.year) { lit(" "); year(); }
      } else {
        lit(", "); month();
        if (o.day) { lit(" "); day(); }
        if (o.year) { lit(o.day ? ", " : " "); year(); }
      }
    } else if (iso && o.year && o.month && o.day) {
      lit(", "); year(); lit("-"); put("month", two(m.month + 1)); lit("-"); put("day", two(m.day));
    } else {
      const order = british ? [["day", day], ["month", month], ["year", year]] : [["month", month], ["day", day], ["year", year]];
      let first = true;
      for (const [name, write] of order as [string, () => void][]) {
        if (!o[name]) continue;
        lit(first ? ", " : "/");
        write();
        first = false;
      }
    }
    this.#time(m, parts, put, o, named, ms);
    return parts.filter((part) => part.value !== "");
  }
  #time(m: Moment, parts: any[], put: (type: string, text: string) => void, o: any, named: boolean, ms: number): void {
    const shows = o.hour || o.minute || o.second || o.fractionalSecondDigits;
    if (shows) {
      if (parts.length) put("literal", o.dateStyle === "full" || o.dateStyle === "long" ? " at " : ", ");
      const twelve = o.hour12 ?? (o.hourCycle ? o.hourCycle.startsWith("h1") : !/^en-(GB|IE|ZA)/i.test(this.#locale));
      const list: [string, string][] = [];
      if (o.hour) {
        const hour = twelve ? m.hour % 12 || 12 : m.hour === 0 && o.hour12 === false && o.hourCycle === undefined && !/^en-GB/i.test(this.#locale) ? 24 : m.hour;
        list.push(["hour", o.hour === "2-digit" || !twelve ? two(hour) : String(hour)]);
      }
      if (o.minute) list.push(["minute", o.hour || o.second ? two(m.minute) : String(m.minute)]);
      if (o.second) list.push(["second", o.minute ? two(m.second) : String(m.second)]);
      list.forEach(([type, text], index) => { if (index) put("literal", ":"); put(type, text); });
      if (o.fractionalSecondDigits) { put("literal", "."); put("fractionalSecond", String(m.ms).padStart(3, "0").slice(0, o.fractionalSecondDigits)); }
      if (o.hour && twelve) {
        put("literal", /^en-(GB|AU|NZ|IE|IN)/i.test(this.#locale) ? " " : " ");
        put("dayPeriod", /^en-(GB|AU|NZ|IE|IN)/i.test(this.#locale) ? (m.hour < 12 ? "am" : "pm") : m.hour < 12 ? "AM" : "PM");
      }
    }
    if (o.timeZoneName) {
      put("literal", parts.length ? (shows ? " " : ", ") : "");
      put("timeZoneName", this.#zone === "UTC" ? (o.timeZoneName === "long" ? "Coordinated Universal Time" : "UTC") : gmt(ms, this.#zone));
    }
    void named;
  }
  formatRange(from: any, to: any): string { return `${this.format(from)} – ${this.format(to)}`; }
  resolvedOptions(): any { return { locale: this.#locale, calendar: "gregory", numberingSystem: "latn", timeZone: this.#zone ?? localZone() }; }
  static supportedLocalesOf(list: any): string[] { return NumberFormat.supportedLocalesOf(list); }
}

function localZone(): string {
  const minutes = -new Date().getTimezoneOffset();
  return minutes === 0 ? "UTC" : `Etc/GMT${minutes > 0 ? "-" : "+"}${Math.abs(Math.round(minutes / 60))}`;
}

function gmt(ms: number, zone: string | undefined): string {
  const minutes = zone === undefined ? -new Date(ms).getTimezoneOffset() : offset(zone, ms);
  if (minutes === 0) return "UTC";
  const size = Math.abs(minutes);
  return `GMT${minutes < 0 ? "-" : "+"}${Math.floor(size / 60)}${size % 60 ? ":" + two(size % 60) : ""}`;
}

// English order: letters before case, marks after letters; with `numeric`, runs of digits by value.
export class Collator {
  #o: any;
  compare: (a: string, b: string) => number;
  constructor(_locales?: any, options: any = {}) {
    this.#o = { numeric: options.numeric === true, sensitivity: options.sensitivity ?? "variant", upperFirst: options.caseFirst === "upper" };
    this.compare = (a: any, b: any) => compare(String(a), String(b), this.#o);
  }
  resolvedOptions(): any { return { locale: "en-US", usage: "sort", sensitivity: this.#o.sensitivity, numeric: this.#o.numeric, collation: "default", caseFirst: "false", ignorePunctuation: false }; }
  static supportedLocalesOf(list: any): string[] { return NumberFormat.supportedLocalesOf(list); }
}

const base = (text: string): string => text.normalize("NFD").replace(/[\u0300-\u036f]/g, "");
const rank = (character: string): number => (/\s/.test(character) ? 0 : /[_\-,;:!?.'"()[\]{}@*\/\\&#%`^+<=>|~$]/.test(character) ? 1 : /\d/.test(character) ? 2 : 3);
const PUNCTUATION = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";

function compare(a: string, b: string, o: any): number {
  const first = level(base(a).toLowerCase(), base(b).toLowerCase(), o.numeric);
  if (first !== 0 || o.sensitivity === "base") return first;
  if (o.sensitivity !== "case") {
    const marks = plain(a.normalize("NFD").toLowerCase(), b.normalize("NFD").toLowerCase());
    if (marks !== 0 || o.sensitivity === "accent") return marks;
  }
  for (let i = 0; i < a.length && i < b.length; i++) {
    if (a[i] !== b[i]) return (a[i] === a[i].toLowerCase() ? -1 : 1) * (o.upperFirst ? -1 : 1);
  }
  return 0;
}

function level(a: string, b: string, numeric: boolean): number {
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    if (numeric && /\d/.test(a[i]) && /\d/.test(b[j])) {
      const one = /^\d+/.exec(a.slice(i))![0];
      const two_ = /^\d+/.exec(b.slice(j))![0];
      const difference = BigInt(one) - BigInt(two_);
      if (difference !== 0n) return difference < 0n ? -1 : 1;
      i += one.length;
      j += two_.length;
      continue;
    }
    const x = a.codePointAt(i)!;
    const y = b.codePointAt(j)!;
    if (x !== y) {
      const left = String.fromCodePoint(x);
      const right = String.fromCodePoint(y);
      const order = rank(left) - rank(right) || (rank(left) === 1 ? PUNCTUATION.indexOf(left) - PUNCTUATION.indexOf(right) : 0);
      return Math.sign(order || x - y);
    }
    i += x > 0xffff ? 2 : 1;
    j += y > 0xffff ? 2 : 1;
  }
  return Math.sign(a.length - i - (b.length - j));
}
const plain = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const EXTEND = /^[\p{M}\u200d\ufe00-\ufe0f\u{1f3fb}-\u{1f3ff}\u{e0020}-\u{e007f}]$/u;
export function graphemes(text: string): string[] {
  const out: string[] = [];
  let regional = false;
  for (const character of text) {
    const last = out.length ? out[out.length - 1] : "";
    const flag = /^[\u{1f1e6}-\u{1f1ff}]$/u.test(character);
    const joins = last !== "" && (EXTEND.test(character) || (last.endsWith("\u200d") && /^\p{Extended_Pictographic}$/u.test(character)) || (last === "\r" && character === "\n") || (flag && regional));
    if (joins && !(/^[\r\n]$/.test(last))) out[out.length - 1] += character;
    else if (last === "\r" && character === "\n") out[out.length - 1] += character;
    else out.push(character);
    regional = flag && !(joins && regional);
  }
  return out;
}

export class Segmenter {
  #kind: string;
  constructor(_locales?: any, options: any = {}) { this.#kind = options.granularity ?? "grapheme"; }
  segment(text: string): any {
    const input = String(text);
    const kind = this.#kind;
    const pieces = kind === "grapheme" ? graphemes(input) : kind === "word" ? input.match(/[\p{L}\p{N}_\p{M}]+(?:['’.][\p{L}\p{N}]+)*|\s+|[^]/gu) ?? [] : input.match(/[^.!?]+[.!?]*\s*/g) ?? [];
    const all = () => {
      let index = 0;
      return pieces.map((segment) => {
        const found: any = { segment, index, input };
        if (kind === "word") found.isWordLike = /[\p{L}\p{N}]/u.test(segment);
        index += segment.length;
        return found;
      });
    };
    return { [Symbol.iterator]: () => all()[Symbol.iterator](), containing: (at = 0) => all().find((one) => at >= one.index && at < one.index + one.segment.length) };
  }
  resolvedOptions(): any { return { locale: "en-US", granularity: this.#kind }; }
}

export class PluralRules {
  #ordinal: boolean;
  constructor(_locales?: any, options: any = {}) { this.#ordinal = options.type === "ordinal"; }
  select(value: number): string {
    if (!this.#ordinal) return value === 1 ? "one" : "other";
    const tens = Math.abs(value) % 100;
    const ones = tens % 10;
    if (ones === 1 && tens !== 11) return "one";
    if (ones === 2 && tens !== 12) return "two";
    return ones === 3 && tens !== 13 ? "few" : "other";
  }
  resolvedOptions(): any { return { locale: "en-US", type: this.#ordinal ? "ordinal" : "cardinal" }; }
}

const WORDS: Record<string, Record<string, string>> = { day: { "-1": "yesterday", "0": "today", "1": "tomorrow" }, year: { "-1": "last year", "0": "this year", "1": "next year" }, month: { "-1": "last month", "0": "this month", "1": "next month" }, week: { "-1": "last week", "0": "this week", "1": "next week" }, hour: { "0": "this hour" }, minute: { "0": "this minute" }, second: { "0": "now" } };
const SHORT: Record<string, string> = { second: "sec.", minute: "min.", hour: "hr.", day: "day", week: "wk.", month: "mo.", quarter: "qtr.", year: "yr." };

export class RelativeTimeFormat {
  #o: any;
  constructor(_locales?: any, options: any = {}) { this.#o = options; }
  format(value: number, unitName: string): string {
    const name = String(unitName).replace(/s$/, "");
    if (!(name in SHORT)) throw new RangeError(`Invalid unit argument for format() '${unitName}'`);
    const word = this.#o.numeric === "auto" ? WORDS[name]?.[String(value)] : undefined;
    if (word) return word;
    const size = Math.abs(value);
    const label = this.#o.style === "short" || this.#o.style === "narrow" ? (name === "day" && size !== 1 ? "days" : SHORT[name]) : name + (size === 1 ? "" : "s");
    const text = `${new NumberFormat().format(size)} ${label}`;
    return value < 0 || Object.is(value, -0) ? `${text} ago` : `in ${text}`;
  }
}

export class ListFormat {
  #o: any;
  constructor(_locales?: any, options: any = {}) { this.#o = options; }
  format(list: Iterable<string>): string {
    const items = [...list];
    const word = this.#o.type === "unit" ? "" : this.#o.type === "disjunction" ? "or " : this.#o.style && this.#o.style !== "long" ? (this.#o.style === "short" ? "& " : "") : "and ";
    if (items.length <= 1) return items[0] ?? "";
    if (items.length === 2) return word ? `${items[0]} ${word}${items[1]}` : items.join(", ");
    return `${items.slice(0, -1).join(", ")}, ${word}${items[items.length - 1]}`;
  }
}

export class DisplayNames {
  constructor(_locales?: any, _options: any = {}) {}
  of(code: string): string { return code; }
}

class Locale {
  readonly baseName: string;
  constructor(tag: string) { this.baseName = locale(tag); }
  get language(): string { return this.baseName.split("-")[0]; }
  get region(): string | undefined { return this.baseName.split("-")[1]; }
  toString(): string { return this.baseName; }
}

const callable = (Kind: any): any => new Proxy(Kind, { apply: (_target, _self, args) => new Kind(...args) });
const Intl: any = {
  NumberFormat: callable(NumberFormat), DateTimeFormat: callable(DateTimeFormat), Collator: callable(Collator), Segmenter, PluralRules, RelativeTimeFormat, ListFormat, DisplayNames, Locale,
  getCanonicalLocales: (list: any) => (list === undefined ? [] : Array.isArray(list) ? [...list] : [list]),
  supportedValuesOf: () => [],
};
Object.defineProperty(Intl, Symbol.toStringTag, { value: "Intl", configurable: true });

const method = (target: any, name: string, value: any): void => { Object.defineProperty(target, name, { value, writable: true, configurable: true, enumerable: false }); };
method(Number.prototype, "toLocaleString", function toLocaleString(this: number, locales?: any, options?: any) { return new NumberFormat(locales, options).format(this); });
method(BigInt.prototype, "toLocaleString", function toLocaleString(this: bigint, locales?: any, options?: any) { return new NumberFormat(locales, options).format(this.valueOf()); });
const shown = (fallback: "date" | "time" | "any") => function (this: Date, locales?: any, options: any = {}) {
  if (Number.isNaN(this.getTime())) return "Invalid Date";
  const asked = { ...options };
  const has = (names: string[]) => names.some((name) => asked[name] !== undefined);
  if (fallback === "date" && !asked.dateStyle && !has(["weekday", "year", "month", "day"])) Object.assign(asked, { year: "numeric", month: "numeric", day: "numeric" });
  if (fallback === "time" && !asked.timeStyle && !has(["hour", "minute", "second", "fractionalSecondDigits"])) Object.assign(asked, { hour: "numeric", minute: "2-digit", second: "2-digit" });
  return new DateTimeFormat(locales, asked, fallback).format(this.getTime());
};
method(Date.prototype, "toLocaleString", shown("any"));
method(Date.prototype, "toLocaleDateString", shown("date"));
method(Date.prototype, "toLocaleTimeString", shown("time"));
method(String.prototype, "localeCompare", function localeCompare(this: string, other: any, _locales?: any, options: any = {}) { return compare(String(this), String(other), { sensitivity: "variant", ...options }); });

install({ Intl });
