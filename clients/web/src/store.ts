/** The ledger's place: IndexedDB, every change in one transaction that is on the disk when it ends. */
import { Refusal } from "./errors.js";
import type { Accounts, StoredPrice, StoredSpend } from "./ledger.js";

/** How far this browser came in a run; a new page goes on from here. */
export interface Progress {
  run: string;
  visitor: string;
  arrival: Uint8Array;
  /**
   * arriving: no reply yet. open: charged, the arm may be seen. answered: `answer` is all that
   * will ever be sent. done: it was taken. closed: nothing is sent any more, `reason` says why.
   */
  stage: "arriving" | "open" | "answered" | "done" | "closed";
  arm: number;
  armName: string;
  reason: string;
  request: Uint8Array;
  arms: string[];
  answer: Uint8Array;
  openedAt: number;
  resumes: boolean; // leaving the page that took the seat sends nothing
}

export interface State extends Accounts {
  progress: Progress | undefined;
}

export interface Change {
  price?: StoredPrice | undefined;
  spend?: StoredSpend;
  progress?: Progress;
}

export interface Store {
  /** Look and write in one transaction; what `decide` throws undoes nothing and is thrown. */
  transact<T>(run: string, decide: (state: State) => [T, Change]): Promise<T>;
  /** Whether it was deleted since this page opened it: nothing is written any more. */
  readonly lost: boolean;
}

export const UNAVAILABLE = "ledger-unavailable";
const NAME = "wallflower";
const LONGEST_MS = 8_000;
const [SPENDS, PRICES, RUNS] = ["spends", "prices", "runs"];

export class BrowserStore implements Store {
  lost = false;

  private constructor(private readonly database: IDBDatabase) {
    // Whoever deletes the ledger need not wait for this page.
    database.onclose = database.onversionchange = () => {
      this.lost = true;
      database.close();
    };
  }

  static async open(): Promise<BrowserStore> {
    try {
      // Throws where a person blocked all storage.
      const opening = indexedDB.open(NAME, 1);
      opening.onupgradeneeded = () => {
        opening.result.createObjectStore(SPENDS!, { keyPath: ["run", "cohort"] });
        opening.result.createObjectStore(PRICES!, { keyPath: "run" });
        opening.result.createObjectStore(RUNS!, { keyPath: "run" });
      };
      return new BrowserStore(await done(opening));
    } catch {
      throw new Refusal(UNAVAILABLE, "this browser keeps no IndexedDB for the page");
    }
  }

  transact<T>(run: string, decide: (state: State) => [T, Change]): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const names = [SPENDS!, PRICES!, RUNS!];
      const work = this.database.transaction(names, "readwrite", { durability: "strict" });
      const [spends, prices, runs] = names.map((name) => work.objectStore(name));
      let [result, failure] = [undefined as T, undefined as unknown];
      // The work of a page that is set aside in the middle holds up every other page.
      const stop = (): void => {
        try {
          work.abort();
        } catch {
          // It was committed.
        }
      };
      const leave = ({ persisted }: PageTransitionEvent): void => void (persisted && stop());
      const timer = setTimeout(stop, LONGEST_MS);
      addEventListener("pagehide", leave);
      const finish = (): void => {
        clearTimeout(timer);
        removeEventListener("pagehide", leave);
      };
      const read: [IDBRequest, IDBRequest, IDBRequest] = [
        spends!.getAll(),
        prices!.getAll(),
        runs!.get(run),
      ];
      read[2].onsuccess = () => {
        try {
          const [spent, priced, progress] = read.map((one) => one.result);
          let change: Change;
          [result, change] = decide({ spends: spent, prices: priced, progress });
          // `add`: a second spend for a cohort fails, whatever was decided.
          if (change.spend) spends!.add(change.spend);
          if (change.price) prices!.add(change.price);
          if (change.progress) runs!.put(change.progress);
          work.commit();
        } catch (error) {
          failure = error;
          work.abort();
        }
      };
      work.oncomplete = () => {
        finish();
        resolve(result);
      };
      work.onabort = () => {
        finish();
        reject(failure ?? work.error);
      };
    }).catch((error: unknown) => {
      if (error instanceof Refusal) throw error;
      throw new Refusal(UNAVAILABLE, "the ledger cannot be written");
    });
  }
}

function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
