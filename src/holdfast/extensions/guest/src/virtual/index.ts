// Nothing is defined here yet.
export {};
