/** Every reason for which this client declines; a code is all that the server learns. */

/** A refusal with its stable kebab-case code (protocol/refusals.py has them all). */
export class Refusal extends Error {
  constructor(
    readonly code: string,
    detail = "",
    /** The same terms will be refused again. */
    readonly terms = false,
  ) {
    super(detail ? `${code}: ${detail}` : code);
    this.name = "Refusal";
  }
}

export class TermsRefusal extends Refusal {
  constructor(code: string, detail = "") {
    super(code, detail, true);
  }
}

/** Truncated, oversized, garbage or bit-flipped. */
export class MalformedMessage extends Refusal {
  constructor(detail: string) {
    super("malformed-message", detail);
  }
}

/** Belongs to another run, cohort, stage, sender or roster. */
export class WrongContext extends Refusal {
  constructor(detail: string) {
    super("wrong-context", detail);
  }
}

/** A signature or certificate does not hold. */
export class NotAuthenticated extends Refusal {
  constructor(detail: string) {
    super("not-authenticated", detail);
  }
}

/** A number is outside its allowed range; where it stands decides which refusal it becomes. */
export class InputError extends Error {}
