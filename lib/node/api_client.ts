/**
 * Opens API clients for requests beside those for objects, such as Events.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../config/types.ts";
import { systemClock, wallClockMs } from "../kernel/clock.ts";
import type { Exec } from "../kernel/exec.ts";
import type { ApiAnswer, ApiRequest } from "../observe/metrics.ts";
import type { KubeClient } from "../source/kube/kube_client.ts";
import { USER_AGENT } from "./version.ts";
import { type EventRecorder, LogEvents } from "../observe/events.ts";
import type { Logger } from "../observe/log.ts";
import { usesApiServer } from "./source.ts";

export interface ApiClientOptions {
  readonly master: string;
  readonly exec?: Exec | undefined;
  readonly onRequest?: ((request: ApiRequest) => void) | undefined;
  readonly onAnswer?: ((answer: ApiAnswer) => void) | undefined;
}

/**
 * A separate client: its requests must neither wait for lists nor use up their rate.
 *
 * @throws {ConfigError} if the kubeconfig is wrong or, without any source, the environment is not a pod's
 */
export async function openApiClient(
  config: KubeProxyConfiguration,
  { master, exec, onRequest = () => {}, onAnswer = () => {} }: ApiClientOptions,
): Promise<KubeClient> {
  // Loaded only where it is needed, as the source is.
  const [{ apiAccess }, { KubeClient }] = await Promise.all([
    import("../source/kube/api_access.ts"),
    import("../source/kube/kube_client.ts"),
  ]);
  const { kubeconfig } = config.clientConnection;
  const access = await apiAccess({ kubeconfig, master, env: Deno.env });
  return new KubeClient({
    access,
    qps: 0,
    burst: 0,
    userAgent: USER_AGENT,
    clock: systemClock,
    exec,
    onRequest,
    onAnswer,
  });
}

export interface EventsOptions extends ApiClientOptions {
  readonly log: Logger;
  readonly hostname?: () => string;
}

/** An Event recorder, and the work behind it, which ends with the signal and never rejects. */
export interface OpenedEvents {
  readonly recorder: EventRecorder;
  run(signal: AbortSignal): Promise<void>;
}

/**
 * A recorder to the API server, if the configuration names one or the source is one; else to the log.
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
    import("../source/kube/event_recorder.ts"),
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
