/**
 * Opens where Events go.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../config/types.ts";
import { systemClock, wallClockMs } from "../kernel/clock.ts";
import { type EventRecorder, LogEvents } from "../observe/events.ts";
import type { Logger } from "../observe/log.ts";
import { type ApiClientOptions, openApiClient } from "./api_client.ts";
import { usesApiServer } from "./source.ts";

/** What beside the configuration decides where Events go. */
export interface EventsOptions extends ApiClientOptions {
  readonly log: Logger;
  readonly hostname?: () => string;
}

/** A recorder, and the work behind it, which ends with the signal and never rejects. */
export interface OpenedEvents {
  readonly recorder: EventRecorder;
  run(signal: AbortSignal): Promise<void>;
}

/**
 * The API server, if the configuration names one or the source is one; else the log.
 *
 * @throws {ConfigError} if the kubeconfig is wrong or, without any source, the environment is not a pod's
 */
export async function openEvents(
  config: KubeProxyConfiguration,
  options: EventsOptions,
): Promise<OpenedEvents> {
  const { master, log, hostname = Deno.hostname } = options;
  if (!usesApiServer(config, master)) {
    return { recorder: new LogEvents(log), run: () => Promise.resolve() };
  }
  // Loaded only where it is needed, as the source is.
  const [client, { KubeEvents }] = await Promise.all([
    openApiClient(config, options),
    import("../source/kube/kube_events.ts"),
  ]);
  const recorder = new KubeEvents({
    client,
    hostname: hostname(),
    log,
    clock: systemClock,
    nowMs: wallClockMs,
    random: Math.random,
  });
  return {
    recorder,
    run: async (signal) => {
      await recorder.run(signal);
      client.close();
    },
  };
}
