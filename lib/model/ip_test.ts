import { assert, assertEquals, assertFalse, assertThrows } from "@std/assert";
import fc from "../../tests/support/fast_check.ts";
import ipaddr from "ipaddr.js";
import {
  cidrContains,
  hostCidr,
  isLoopback,
  isUnspecified,
  joinHostPort,
  localHost,
  parseCidr,
  parseIp,
  splitHostPort,
} from "./ip.ts";

const pure = { permissions: "none" } as const;

Deno.test("addresses are read and written canonically", pure, () => {
  const table: readonly [string, "IPv4" | "IPv6", string][] = [
    ["10.0.0.1", "IPv4", "10.0.0.1"],
    ["0.0.0.0", "IPv4", "0.0.0.0"],
    ["255.255.255.255", "IPv4", "255.255.255.255"],
    ["010.000.08.0255", "IPv4", "10.0.8.255"],
    ["192.168.010.001", "IPv4", "192.168.10.1"],
    ["::", "IPv6", "::"],
    ["::1", "IPv6", "::1"],
    ["1::", "IPv6", "1::"],
    ["FD00:1:0:0::2", "IPv6", "fd00:1::2"],
    ["fd00:0001::00a0", "IPv6", "fd00:1::a0"],
    ["2001:db8:0:0:1:0:0:1", "IPv6", "2001:db8::1:0:0:1"],
    ["2001:0:0:1:0:0:0:1", "IPv6", "2001:0:0:1::1"],
    ["1:2:3:4:5:6:7::", "IPv6", "1:2:3:4:5:6:7:0"],
    ["::2:3:4:5:6:7:8", "IPv6", "0:2:3:4:5:6:7:8"],
    ["1:2:3:4:5:6:7:8", "IPv6", "1:2:3:4:5:6:7:8"],
    ["0:0:0:0:0:0:0:0", "IPv6", "::"],
    ["1:0:0:2:3:4:0:0", "IPv6", "1::2:3:4:0:0"],
    ["64:ff9b::10.0.0.1", "IPv6", "64:ff9b::a00:1"],
    ["::ffff:10.0.0.1", "IPv4", "10.0.0.1"],
    ["::ffff:010.0.0.1", "IPv4", "10.0.0.1"],
    ["::FFFF:a00:1", "IPv4", "10.0.0.1"],
    ["0:0:0:0:0:ffff:1.2.3.4", "IPv4", "1.2.3.4"],
  ];
  for (const [text, family, canonical] of table) {
    const ip = parseIp(text);
    assertEquals([text, ip?.family, ip?.text], [text, family, canonical]);
    assertEquals(ip?.bytes.length, family === "IPv4" ? 4 : 16, text);
    assertEquals(parseIp(canonical), ip, text);
  }
});

Deno.test("what is no address is refused", pure, () => {
  const refused = [
    "",
    " ",
    "10.0.0",
    "10.0.0.0.1",
    "10.0.0.256",
    "10.0.0.-1",
    "10.0.0.",
    ".10.0.0",
    "10..0.1",
    "0x0a.0.0.1",
    "167772161",
    " 10.0.0.1",
    "10.0.0.1 ",
    "10.0.0.1/32",
    "10.0.0.1:80",
    "[::1]",
    ":",
    ":::",
    ":1",
    "1:",
    "::1:",
    ":1::",
    "1:::2",
    "1::2::3",
    "1:2:3:4:5:6:7",
    "1:2:3:4:5:6:7:8:9",
    "1:2:3:4::5:6:7:8",
    "12345::",
    "g::1",
    "fe80::1%eth0",
    "::1%",
    "::10.0.0.256",
    "::10.0.0",
    "::ffff:10.0.0.1%lo",
    "10.0.0.1::",
    "1:2:3:4:5:6:7:1.2.3.4",
    "１0.0.0.1",
  ];
  for (const text of refused) assertEquals([text, parseIp(text)], [text, null]);
});

Deno.test("any 16 bytes survive every spelling of the address", pure, () => {
  const group = fc.oneof({ weight: 2, arbitrary: fc.constant(0) }, fc.integer({ min: 0, max: 0xffff }));
  fc.assert(fc.property(fc.array(group, { minLength: 8, maxLength: 8 }), (groups) => {
    const reference = new ipaddr.IPv6(groups);
    const full = groups.map((value) => value.toString(16).padStart(4, "0")).join(":");
    const ip = parseIp(full);
    assert(ip !== null);
    assertEquals(parseIp(full.toUpperCase()), ip);
    assertEquals(parseIp(ip.text), ip);
    if (ip.family === "IPv6") {
      assertEquals(ip.bytes, reference.toByteArray());
      assertEquals(ip.text, reference.toRFC5952String());
    } else {
      assert(reference.isIPv4MappedAddress());
    }
  }));
});

Deno.test("any text is read as the library reads it, but for leading zeros and zones", pure, () => {
  const character = fc.constantFrom(..."01f::::.".split(""));
  fc.assert(
    fc.property(fc.array(character, { maxLength: 16 }), (characters) => {
      const text = characters.join("");
      if (!text.includes(":") || /(^|[^0-9])0[0-9]+\.|\.0[0-9]/.test(text)) return;
      const ip = parseIp(text);
      assertEquals([text, ip !== null], [text, ipaddr.IPv6.isValid(text)]);
      if (ip?.family === "IPv6") assertEquals(ip.bytes, ipaddr.IPv6.parse(text).toByteArray());
    }),
    { numRuns: 3000 },
  );
});

Deno.test("networks lose their host bits", pure, () => {
  const table: readonly [string, string, number][] = [
    ["10.1.2.3/8", "10.0.0.0/8", 8],
    ["10.1.2.3/0", "0.0.0.0/0", 0],
    ["10.1.2.3/32", "10.1.2.3/32", 32],
    ["10.255.255.255/13", "10.248.0.0/13", 13],
    ["010.1.0.0/016", "10.1.0.0/16", 16],
    ["fd00:1:2::9/48", "fd00:1:2::/48", 48],
    ["FFFF::/1", "8000::/1", 1],
    ["::1/0", "::/0", 0],
    ["::1/128", "::1/128", 128],
  ];
  for (const [text, canonical, prefixLength] of table) {
    const cidr = parseCidr(text);
    assertEquals([text, cidr?.text, cidr?.prefixLength], [text, canonical, prefixLength]);
    assertEquals(parseCidr(canonical), cidr, text);
  }
  const refused = [
    "",
    "10.0.0.0",
    "10.0.0.0/",
    "10.0.0.0/33",
    "10.0.0.0/-1",
    "10.0.0.0/+8",
    "10.0.0.0/8/8",
    "10.0.0.0/255.0.0.0",
    "10.0.0/8",
    "::/129",
    " 10.0.0.0/8",
    "fe80::%eth0/64",
    "::ffff:10.0.0.0/104",
    "::ffff:10.0.0.0/8",
    "/8",
  ];
  for (const text of refused) assertEquals([text, parseCidr(text)], [text, null]);
});

Deno.test("a network holds the addresses that share its prefix, of its family only", pure, () => {
  const table: readonly [string, string, boolean][] = [
    ["10.0.0.0/8", "10.255.0.1", true],
    ["10.0.0.0/8", "11.0.0.0", false],
    ["10.0.0.0/13", "10.7.255.255", true],
    ["10.0.0.0/13", "10.8.0.0", false],
    ["0.0.0.0/0", "1.2.3.4", true],
    ["0.0.0.0/0", "::1", false],
    ["::/0", "1.2.3.4", false],
    ["::/0", "fd00::1", true],
    ["fd00::/7", "fe00::1", false],
    ["fd00:1:8000::/33", "fd00:1:8000::1", true],
    ["fd00:1:8000::/33", "fd00:1:7fff::1", false],
    ["10.0.0.1/32", "10.0.0.1", true],
    ["10.0.0.1/32", "10.0.0.2", false],
    ["10.0.0.0/8", "::ffff:10.0.0.9", true],
  ];
  for (const [cidrText, ipText, expected] of table) {
    const cidr = parseCidr(cidrText);
    const ip = parseIp(ipText);
    assert(cidr !== null && ip !== null);
    assertEquals([cidrText, ipText, cidrContains(cidr, ip)], [cidrText, ipText, expected]);
    assert(cidrContains(hostCidr(ip), ip));
    assertEquals(parseCidr(hostCidr(ip).text), hostCidr(ip));
  }
});

Deno.test("loopback and unspecified addresses are told apart from others", pure, () => {
  const loopback = (text: string): boolean => {
    const ip = parseIp(text);
    assert(ip !== null);
    return isLoopback(ip);
  };
  assert(loopback("127.0.0.1"));
  assert(loopback("127.255.0.1"));
  assert(loopback("::1"));
  assert(loopback("::ffff:127.0.0.1"));
  assertFalse(loopback("128.0.0.1"));
  assertFalse(loopback("::2"));
  for (const text of ["0.0.0.0", "::", "000.0.0.0"]) {
    const ip = parseIp(text);
    assert(ip !== null && isUnspecified(ip), text);
  }
  const ip = parseIp("0.0.0.1");
  assert(ip !== null && !isUnspecified(ip));
});

Deno.test("address and port join with brackets around IPv6", pure, () => {
  assertEquals(joinHostPort("10.0.0.1", 80), "10.0.0.1:80");
  assertEquals(joinHostPort("fd00::1", 80), "[fd00::1]:80");
});

for (
  const [address, host, port] of [
    ["10.0.0.1:80", "10.0.0.1", 80],
    ["[fd00:0::1]:65535", "fd00::1", 65535],
    ["10.0.0.1:0", "10.0.0.1", 0],
  ] as const
) {
  Deno.test(`${address} is taken apart`, pure, () => assertEquals(splitHostPort(address), [host, port]));
}

Deno.test("what is no IP:port is refused", pure, () => {
  for (
    const address of [
      "",
      ":80",
      "[]:80",
      "10.0.0.1",
      "10.0.0.1:",
      "x:80",
      "fd00::1:80",
      "[fd00::1]",
      "10.0.0.1:65536",
    ]
  ) {
    assertThrows(() => splitHostPort(address), TypeError, `"${address}" is not IP:port`);
  }
});

Deno.test("a zone before a dotted tail is no address", pure, () => {
  for (const text of ["fe80::1%a:1.2.3.4", "fe80::%1:1.2.3.4", "::x:1.2.3.4", "%::1.2.3.4"]) {
    assertEquals(parseIp(text), null);
  }
});

Deno.test("a server that listens everywhere is asked at the loopback address of its family", pure, () => {
  for (
    const [host, asked] of [
      ["0.0.0.0", "127.0.0.1"],
      ["::", "::1"],
      ["0:0::0", "::1"],
      ["192.0.2.10", "192.0.2.10"],
      ["fd00::1", "fd00::1"],
      ["localhost", "localhost"],
    ] as const
  ) assertEquals(localHost(host), asked);
});
