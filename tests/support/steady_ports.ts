/**
 * Ports for test servers that are closed and opened again: below the kernel's range for clients and for programs that ask for any port, so
 * that no other process gets one of them by chance.
 *
 * @module
 */

/** Range of these ports, below the kernel's usual `net.ipv4.ip_local_port_range`, above well-known ones. */
const [FIRST_PORT, PORTS] = [11_000, 18_000];
/** Attempts; many times what a machine full of servers needs. */
const TRIES = 200;

/** Listens on one of these ports. */
export function listenSteadily(hostname = "127.0.0.1"): Deno.TcpListener {
  for (let tries = 0;; tries++) {
    try {
      return Deno.listen({ hostname, port: FIRST_PORT + Math.floor(Math.random() * PORTS) });
    } catch (error) {
      if (!(error instanceof Deno.errors.AddrInUse) || tries === TRIES) throw error;
    }
  }
}

/** The first of `count` consecutive free ports. */
export function steadyPorts(count = 1, hostname = "127.0.0.1"): number {
  for (let tries = 0;; tries++) {
    const listeners = [listenSteadily(hostname)];
    const { port } = listeners[0]!.addr;
    try {
      for (let next = 1; next < count; next++) listeners.push(Deno.listen({ hostname, port: port + next }));
      return port;
    } catch (error) {
      if (!(error instanceof Deno.errors.AddrInUse) || tries === TRIES) throw error;
    } finally {
      for (const listener of listeners) listener.close();
    }
  }
}
