/**
 * Rules of kube-proxy's nftables mode for the Service `shop/web` with two endpoints.
 *
 * @module
 */

/** Table in kube-proxy's own layout, as `nft list ruleset` prints it. */
export const KUBE_PROXY_TABLE = `table ip kube-proxy {
	comment "rules for kube-proxy"

	set cluster-ips {
		type ipv4_addr
		comment "Active ClusterIPs"
		elements = { 10.96.10.1 }
	}

	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "ClusterIP, ExternalIP and LoadBalancer IP traffic"
		elements = { 10.96.10.1 . tcp . 80 : goto service-ULMVA6XW-shop/web/tcp/http }
	}

	chain services {
		ip daddr . meta l4proto . th dport vmap @service-ips
	}

	chain mark-for-masquerade {
		meta mark set meta mark | 0x00004000
	}

	chain masquerading {
		meta mark & 0x00004000 == 0x00000000 return
		meta mark set meta mark ^ 0x00004000
		masquerade fully-random
	}

	chain nat-prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}

	chain nat-output {
		type nat hook output priority dstnat; policy accept;
		jump services
	}

	chain nat-postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		jump masquerading
	}

	chain service-ULMVA6XW-shop/web/tcp/http {
		ip daddr 10.96.10.1 tcp dport 80 ip saddr != 10.244.0.0/16 jump mark-for-masquerade
		numgen random mod 2 vmap { 0 : goto endpoint-AAAA-shop/web/tcp/http__10.244.0.11/8080, 1 : goto endpoint-BBBB-shop/web/tcp/http__10.244.0.12/8080 }
	}

	chain endpoint-AAAA-shop/web/tcp/http__10.244.0.11/8080 {
		ip saddr 10.244.0.11 jump mark-for-masquerade
		meta l4proto tcp dnat to 10.244.0.11:8080
	}

	chain endpoint-BBBB-shop/web/tcp/http__10.244.0.12/8080 {
		ip saddr 10.244.0.12 jump mark-for-masquerade
		meta l4proto tcp dnat to 10.244.0.12:8080
	}
}
`;
