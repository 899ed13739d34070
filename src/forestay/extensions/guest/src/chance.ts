// Math.random: the engine seeds its own from the clock, which was fixed when the image was made. So this one gets its
// seed from the host on first use. (xoshiro128**, Blackman and Vigna)

import { randomBytes } from "./bridge";
import { defineProperty } from "./primordials";

const imul = Math.imul;
const state = new Uint32Array(4);
let seeded = false;

function seed(): void {
  const bytes = randomBytes(16);
  for (let i = 0; i < 4; i++) state[i] = (bytes[4 * i] | (bytes[4 * i + 1] << 8) | (bytes[4 * i + 2] << 16) | (bytes[4 * i + 3] << 24)) >>> 0;
  if ((state[0] | state[1] | state[2] | state[3]) === 0) state[0] = 1;
  seeded = true;
}

function next(): number {
  const product = imul(state[1], 5);
  const result = imul((product << 7) | (product >>> 25), 9) >>> 0;
  const shifted = state[1] << 9;
  state[2] ^= state[0];
  state[3] ^= state[1];
  state[1] ^= state[2];
  state[0] ^= state[3];
  state[2] ^= shifted;
  state[3] = (state[3] << 11) | (state[3] >>> 21);
  return result;
}

defineProperty(Math, "random", {
  __proto__: null,
  value: function random(): number {
    if (!seeded) seed();
    return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
  },
  writable: true, configurable: true, enumerable: false,
} as any);
