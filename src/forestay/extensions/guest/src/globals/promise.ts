// Promise.any as the language defines it; the engine's own gives an error without a message.

function any(this: any, given: Iterable<any>): Promise<any> {
  return new this((resolve: any, reject: any) => {
    const errors: any[] = [];
    let open = 1;
    const done = () => { if (--open === 0) reject(allRejected(errors)); };
    for (const item of given) {
      const at = errors.length;
      errors.push(undefined);
      open++;
      this.resolve(item).then(resolve, (error: any) => { errors[at] = error; done(); });
    }
    done();
  });
}

function allRejected(errors: any[]): AggregateError {
  const error = new AggregateError(errors, "All promises were rejected");
  Object.defineProperty(error, "stack", { value: `${error.name}: ${error.message}`, writable: true, configurable: true });
  return error;
}

Object.defineProperty(Promise, "any", { value: any, writable: true, configurable: true, enumerable: false });
export {};
