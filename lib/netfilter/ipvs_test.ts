import { assertEquals, assertThrows } from "@std/assert";
import {
  addRealServerLine,
  addVirtualServerLine,
  deleteRealServerLine,
  deleteVirtualServerLine,
  parseIpvsLoads,
  parseIpvsTable,
  sameTreatment,
  updateRealServerLine,
  updateVirtualServerLine,
  type VirtualServer,
  virtualServerKey,
} from "./ipvs.ts";
import { formatIpvsTable } from "../../tests/support/saved_texts.ts";

const permissions = "none";

/** Output of ipvsadm 1.31. */
const SAVED = `-A -t 10.1.0.1:80 -s rr
-a -t 10.1.0.1:80 -r 10.2.0.1:8080 -m -w 1
-a -t 10.1.0.1:80 -r 10.2.0.2:80 -g -w 2
-a -t 10.1.0.1:80 -r 10.2.0.4:80 -i -w 0 --tun-type gue --tun-port 6080 --tun-nocsum
-A -t 10.1.0.3:80 -s mh -p 100 -b mh-fallback,mh-port
-A -t 10.1.0.6:80 -s rr -p 600 -M 255.255.255.0
-A --sctp-service 10.1.0.7:99 -s rr
-A -u [fd00::1]:53 -s rr
-a -u [fd00::1]:53 -r [fd00::2]:53 -m -w 1
-A -f 33 -s rr -p 300
-a -f 33 -r 10.2.0.9:0 -g -w 5
-A -f 34 -6 -s rr
`;

const SERVER: VirtualServer = {
  address: "10.96.0.2",
  protocol: "TCP",
  port: 6379,
  scheduler: "rr",
  flags: [],
  timeoutSeconds: 600,
};

Deno.test("lines that change virtual and real servers", { permissions }, () => {
  const real = { address: "10.244.0.21", port: 6379, weight: 1 };
  assertEquals(addVirtualServerLine(SERVER), "-A -t 10.96.0.2:6379 -s rr -p 600");
  assertEquals(
    updateVirtualServerLine({ ...SERVER, scheduler: "mh", flags: ["mh-port"], timeoutSeconds: 0 }),
    "-E -t 10.96.0.2:6379 -s mh -b mh-port",
  );
  assertEquals(
    deleteVirtualServerLine({ address: "fd00::9", protocol: "SCTP", port: 1 }),
    "-D --sctp-service [fd00::9]:1",
  );
  assertEquals(addRealServerLine(SERVER, real), "-a -t 10.96.0.2:6379 -r 10.244.0.21:6379 -m -w 1");
  assertEquals(
    updateRealServerLine({ ...SERVER, protocol: "UDP" }, { ...real, weight: 0 }),
    "-e -u 10.96.0.2:6379 -r 10.244.0.21:6379 -m -w 0",
  );
  assertEquals(
    deleteRealServerLine({ address: "fd00::9", protocol: "TCP", port: 80 }, {
      address: "fd00::1",
      port: 8080,
    }),
    "-d -t [fd00::9]:80 -r [fd00::1]:8080",
  );
});

Deno.test("a saved table is read", { permissions }, () => {
  const { virtualServers, otherLines } = parseIpvsTable(SAVED);
  assertEquals([...virtualServers.keys()], [
    "10.1.0.1:80/TCP",
    "10.1.0.3:80/TCP",
    "10.1.0.6:80/TCP",
    "10.1.0.7:99/SCTP",
    "[fd00::1]:53/UDP",
  ]);
  assertEquals([...virtualServers.get("10.1.0.1:80/TCP")?.realServers.values() ?? []], [
    { address: "10.2.0.1", port: 8080, weight: 1 },
    { address: "10.2.0.2", port: 80, weight: 2, otherOptions: "-g" },
    {
      address: "10.2.0.4",
      port: 80,
      weight: 0,
      otherOptions: "-i --tun-type gue --tun-port 6080 --tun-nocsum",
    },
  ]);
  assertEquals(virtualServers.get("10.1.0.3:80/TCP")?.server, {
    address: "10.1.0.3",
    protocol: "TCP",
    port: 80,
    scheduler: "mh",
    flags: ["mh-fallback", "mh-port"],
    timeoutSeconds: 100,
  });
  assertEquals(virtualServers.get("10.1.0.6:80/TCP")?.server.otherOptions, "-M 255.255.255.0");
  assertEquals(virtualServers.get("[fd00::1]:53/UDP")?.server.address, "fd00::1");
  assertEquals(otherLines, ["-A -f 33 -s rr -p 300", "-a -f 33 -r 10.2.0.9:0 -g -w 5", "-A -f 34 -6 -s rr"]);
});

Deno.test("writing and reading a table yields the same table", { permissions }, () => {
  const table = parseIpvsTable(SAVED);
  assertEquals(parseIpvsTable(formatIpvsTable(table)), table);
  assertEquals(parseIpvsTable("").virtualServers.size, 0);
});

Deno.test("what ipvsadm never prints is refused", { permissions }, () => {
  const broken = ["blub", "-D -t 10.1.0.1:80", "-a -t 10.1.0.1:80 -r 10.2.0.1:80 -m -w 1", "-X -f 3"];
  for (const line of broken) assertThrows(() => parseIpvsTable(`${line}\n`), SyntaxError);
});

Deno.test(
  "servers are treated alike if scheduler, flags, timeout and all other options are",
  { permissions },
  () => {
    assertEquals(sameTreatment(SERVER, { ...SERVER, address: "10.96.0.3" }), true);
    for (
      const change of [
        { scheduler: "lc" },
        { flags: ["flag-1"] },
        { timeoutSeconds: 0 },
        { otherOptions: "--ops" },
      ]
    ) assertEquals(sameTreatment(SERVER, { ...SERVER, ...change }), false, JSON.stringify(change));
  },
);

Deno.test("connections are counted per real server", { permissions }, () => {
  const loads = parseIpvsLoads(`IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.1.0.1:80 rr persistent 600
  -> 10.2.0.1:8080                Masq    1      12345678   7         
  -> 10.2.0.2:80                  Route   0      0          3         
UDP  [fd00::1]:53 rr
  -> [fd00:1234:5678:9abc:def0:1234:5678:9abc]:53 Masq    1      0          4         
FWM  33 rr persistent 300
  -> 10.2.0.9:0                   Route   5      9          9         
SCTP 10.1.0.7:99 rr
`);
  assertEquals([...loads.keys()], ["10.1.0.1:80/TCP", "[fd00::1]:53/UDP", "10.1.0.7:99/SCTP"]);
  assertEquals([...loads.get("10.1.0.1:80/TCP")?.realServers ?? []], [
    ["10.2.0.1:8080", {
      address: "10.2.0.1",
      port: 8080,
      weight: 1,
      activeConnections: 12345678,
      inactiveConnections: 7,
    }],
    ["10.2.0.2:80", {
      address: "10.2.0.2",
      port: 80,
      weight: 0,
      activeConnections: 0,
      inactiveConnections: 3,
      otherOptions: "Route",
    }],
  ]);
  assertEquals(
    loads.get("[fd00::1]:53/UDP")?.realServers.get("[fd00:1234:5678:9abc:def0:1234:5678:9abc]:53")
      ?.inactiveConnections,
    4,
  );
  assertEquals(loads.get("10.1.0.7:99/SCTP")?.realServers.size, 0);
});

Deno.test("keys tell protocols apart", { permissions }, () => {
  assertEquals(virtualServerKey(SERVER), "10.96.0.2:6379/TCP");
  assertEquals(virtualServerKey({ address: "fd00::1", port: 53, protocol: "UDP" }), "[fd00::1]:53/UDP");
});
