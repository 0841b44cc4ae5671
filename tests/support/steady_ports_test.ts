import { assert, assertEquals } from "@std/assert";
import { listenSteadily, steadyPorts } from "./steady_ports.ts";

Deno.test("steady ports are none that the kernel gives to clients, and are free", async () => {
  const range = await Deno.readTextFile("/proc/sys/net/ipv4/ip_local_port_range");
  const [firstOfClients = 0] = range.trim().split(/\s+/).map(Number);
  using one = listenSteadily();
  const first = steadyPorts(3);
  assert(one.addr.port < firstOfClients && first + 2 < firstOfClients, `${one.addr.port}, ${first}`);
  for (const port of [first, first + 1, first + 2]) {
    using again = Deno.listen({ hostname: "127.0.0.1", port });
    assertEquals(again.addr.port, port);
  }
});
