/** Sends the jobs of one iteration of the event loop together. */

/** The maximum number of batches in flight. Further jobs wait in the process, where their time limit has not started. */
const MAX_BATCHES = 8;

export class Batcher<Job> {
  readonly #send: (batch: readonly Job[]) => Promise<void>;
  readonly #count: (queue: readonly Job[]) => number;
  readonly #queue: Job[] = [];
  #sent = 0;
  #isScheduled = false;

  /** `send` sends a batch, and never rejects. `count` returns how many jobs from the front of the queue form the next batch. */
  constructor(send: (batch: readonly Job[]) => Promise<void>, count: (queue: readonly Job[]) => number) {
    this.#send = send;
    this.#count = count;
  }

  /** Sends a job together with the others of this iteration. */
  add(job: Job): void {
    this.#queue.push(job);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isScheduled || this.#queue.length === 0) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      while (this.#sent < MAX_BATCHES && this.#queue.length > 0) {
        this.#sent++;
        void this.#send(this.#queue.splice(0, this.#count(this.#queue))).finally(() => {
          this.#sent--;
          this.#schedule();
        });
      }
    });
  }
}
