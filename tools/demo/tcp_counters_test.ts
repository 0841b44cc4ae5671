import { assertEquals } from "@std/assert";
import { tcpCounters } from "./tcp_counters.ts";

Deno.test("the counters of TCP have their names, and those of other protocols are left out", {
  permissions: "none",
}, () => {
  const text = "TcpExt: ListenDrops TCPSynRetrans\nTcpExt: 3 7\nIpExt: InOctets\nIpExt: 12\n";
  assertEquals([...tcpCounters(text)], [["ListenDrops", 3], ["TCPSynRetrans", 7]]);
  assertEquals(tcpCounters("").size, 0);
});
