/** Certificates, whom to believe, and invitations. */
import { ed25519 } from "@noble/curves/ed25519.js";
import { canonical, equal } from "./bytes.js";
import { MalformedMessage, NotAuthenticated } from "./errors.js";
import { create, decode, encode } from "./wire.js";
import { EnrolmentCertificate } from "./gen/messages.js";

const LARGEST_CERTIFICATE = 1024;
const SEED_BYTES = 32;

export function readCertificate(body: Uint8Array): EnrolmentCertificate {
  if (body.length > LARGEST_CERTIFICATE) throw new MalformedMessage("a certificate is too long");
  const read = decode(EnrolmentCertificate, body);
  if (read.publicKey.length !== 32 || read.signature.length !== 64) {
    throw new MalformedMessage("an enrolment certificate is incomplete");
  }
  return read;
}

function signedPart(one: EnrolmentCertificate): Uint8Array {
  return canonical(
    "wallflower/v1/enrolment-certificate",
    one.nodeId,
    one.publicKey,
    one.serial,
    one.notAfter,
    one.capacity,
  );
}

export function verifySignature(key: Uint8Array, signature: Uint8Array, message: Uint8Array): void {
  // Strict encodings (RFC 8032), as the Python client's library has them.
  let holds = false;
  try {
    holds = ed25519.verify(signature, message, key, { zip215: false });
  } catch {
    // Of a wrong length.
  }
  if (!holds) throw new NotAuthenticated("a signature does not hold");
}

/** Whom a party believes: an enrolment key, minus what has expired or is revoked. */
export class Trust {
  constructor(
    private readonly enrolmentKey: Uint8Array,
    private readonly revoked: ReadonlySet<bigint>,
    private readonly clock: () => number = () => Date.now() / 1000,
  ) {}

  /** Return the certificate of `party`, or refuse it. */
  verify(party: string, body: Uint8Array): EnrolmentCertificate {
    const certificate = readCertificate(body);
    verifySignature(this.enrolmentKey, certificate.signature, signedPart(certificate));
    if (Number(certificate.notAfter) < this.clock()) {
      throw new NotAuthenticated("a certificate has expired");
    }
    if (this.revoked.has(certificate.serial)) throw new NotAuthenticated("a certificate is revoked");
    if (certificate.nodeId !== party) throw new NotAuthenticated("a certificate of somebody else");
    return certificate;
  }
}

/** A key with somebody's word for it: who the visitor is. */
export interface Identity {
  name: string;
  capacity: bigint;
  certificate: Uint8Array;
  sign(message: Uint8Array): Uint8Array;
}

/** Read an invitation's text; it holds a key, so it belongs into no address that is sent. */
export function readInvitation(text: string): Identity {
  const body = fromBase64Url(text);
  if (body.length <= SEED_BYTES) throw new MalformedMessage("an invitation is cut short");
  const [seed, rest] = [body.slice(0, SEED_BYTES), body.subarray(SEED_BYTES)];
  const read = readCertificate(rest);
  if (!equal(ed25519.getPublicKey(seed), read.publicKey)) {
    throw new MalformedMessage("an invitation is for another key");
  }
  return {
    name: read.nodeId,
    capacity: read.capacity,
    certificate: encode(EnrolmentCertificate, create(EnrolmentCertificate, { ...read, $unknown: [] })),
    sign: (message) => ed25519.sign(message, seed),
  };
}

function fromBase64Url(text: string): Uint8Array {
  try {
    if (!/^[\w+/-]*$/.test(text)) throw new TypeError();
    const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    return Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
  } catch {
    throw new MalformedMessage("an invitation is garbled");
  }
}

/** Return what a visitor signs on arrival. */
export function arrivalTranscript(poll: {
  version: number;
  runId: string;
  visitor: string;
  arrival: Uint8Array;
  certificate: Uint8Array;
}): Uint8Array {
  const { version, runId, visitor, arrival, certificate } = poll;
  return canonical("wallflower/v1/arrival", version, runId, visitor, arrival, certificate);
}
