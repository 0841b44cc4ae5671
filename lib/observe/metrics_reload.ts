/**
 * State of the configuration file while the proxy runs.
 *
 * @module
 */
import { Counter, Gauge, type Registry } from "./prom_client.ts";

/** What has happened to the configuration file since the process began; it outlives restarts inside the process. */
export class ReloadRecord {
  #failures = 0;
  #isRefused = false;
  #lastSuccessMs: number;

  /** @param nowMs when the first configuration was taken, in milliseconds since the epoch */
  constructor(nowMs: number) {
    this.#lastSuccessMs = nowMs;
  }

  /** A changed file was refused. */
  refused(): void {
    this.#failures++;
    this.#isRefused = true;
  }

  /** What the file says is in force. */
  taken(nowMs: number): void {
    this.#isRefused = false;
    this.#lastSuccessMs = nowMs;
  }

  /** What has happened so far. */
  get state(): { readonly failures: number; readonly isInForce: boolean; readonly lastSuccessMs: number } {
    return { failures: this.#failures, isInForce: !this.#isRefused, lastSuccessMs: this.#lastSuccessMs };
  }

  /** Adds `kproxy_config_*`. */
  addTo(registry: Registry): void {
    const failures = (): number => this.#failures;
    const isInForce = (): number => this.#isRefused ? 0 : 1;
    const seconds = (): number => this.#lastSuccessMs / 1000;
    new Counter({
      name: "kproxy_config_reload_failures_total",
      help: "[ALPHA] Refused changes of the configuration file",
      registers: [registry],
      collect(): void {
        this.reset();
        this.inc(failures());
      },
    });
    new Gauge({
      name: "kproxy_config_last_reload_successful",
      help: "[ALPHA] 1 if the current configuration file is in force, 0 if it was refused",
      registers: [registry],
      collect(): void {
        this.set(isInForce());
      },
    });
    new Gauge({
      name: "kproxy_config_last_reload_success_timestamp_seconds",
      help: "[ALPHA] Time of the last successful reload, in seconds since the epoch",
      registers: [registry],
      collect(): void {
        this.set(seconds());
      },
    });
  }
}
