/** The news of a watch, for `for await`. */

import "./dispose.js";
import type { Engine } from "./engine.js";
import type { News, Watch } from "./model.js";

const UNREAD = 1000; // news that are kept for their reader

/**
 * `for await (const news of watching)`. Leaving the loop ends the watch, and so
 * do close() and the signal, with its reason.
 */
export class Watching<N extends News> implements AsyncIterableIterator<N> {
  private readonly engine: Engine;
  private readonly name: string;
  private readonly members: boolean;
  private readonly signal: AbortSignal | undefined;
  private watch: Watch | null = null;
  private unread: N[] = [];
  private over = false;
  private wake: (() => void) | null = null;

  /** @internal */
  constructor(engine: Engine, name: string, members: boolean,
    signal: AbortSignal | undefined) {
    this.engine = engine;
    this.name = name;
    this.members = members;
    this.signal = signal;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<N, undefined>> {
    if (this.watch === null && !this.over) await this.begin();
    while (this.unread.length === 0 && !this.over) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
    if (this.unread.length > 0) {
      return { done: false, value: this.unread.shift() as N };
    }
    if (this.signal?.aborted) throw this.signal.reason;
    if (this.watch !== null && this.watch.error !== null) {
      throw this.watch.error;
    }
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorResult<N, undefined>> {
    this.close();
    return { done: true, value: undefined };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  /** Ends the watch. */
  close(): void {
    if (this.watch !== null) {
      this.engine.core.unwatch(this.watch);
      this.engine.settle();
    }
    this.unread = [];
    this.tellOver();
  }

  private async begin(): Promise<void> {
    const call = this.engine.core.watch(this.name, this.members);
    if (call.watch !== null) {
      this.watch = call.watch;
      call.watch.user = this as Watch["user"];
    }
    try {
      await this.engine.ask([call], { signal: this.signal });
      this.signal?.addEventListener("abort", this.stop);
    } catch (error) {
      this.tellOver();
      throw error;
    }
  }

  private readonly stop = () => this.close();

  /** @internal News of the broker. */
  tell(news: N): void {
    if (this.unread.push(news) > UNREAD) this.unread.shift();
    this.wake?.();
  }

  /** @internal The watch has ended. */
  tellOver(): void {
    this.over = true;
    this.signal?.removeEventListener("abort", this.stop);
    this.wake?.();
  }
}
