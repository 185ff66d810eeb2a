/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel's socket types, fields in use only, relocated by name (see vmlinux/kernel.h for the method). Owns where a socket
 * keeps what; knows no map and no signal.
 */
#ifndef TAILWATER_NET_TYPES_H
#define TAILWATER_NET_TYPES_H

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
/* Bytes of a TCP header before those of its own length (in the upper half of one, in words of 32 bits) and of its flags (RFC 9293, 3.1). */
#define TCP_LENGTH_AT 12
#define TCP_FLAGS_AT 13
#define TCP_FLAG_SYN 0x02
#define TCP_FLAG_RST 0x04
#define TCP_FLAG_ACK 0x10
#define EINTR 4
#define EAGAIN 11
#define ERESTARTSYS 512 /* include/linux/errno.h: a wait that a signal ended */
#define MSG_PEEK 2
#define MSG_ERRQUEUE 0x2000
#define SHUTDOWN_MASK 3
#define CLOCK_MONOTONIC 1

/* include/net/tcp_states.h: part of the ABI (tcp_info) */
enum {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT,
	TCP_SYN_RECV,
	TCP_FIN_WAIT1,
	TCP_FIN_WAIT2,
	TCP_TIME_WAIT,
	TCP_CLOSE,
	TCP_CLOSE_WAIT,
	TCP_LAST_ACK,
	TCP_LISTEN,
};

/* include/net/dropreason-core.h: numbered by kernel version, so always taken by bpf_core_enum_value */
enum skb_drop_reason {
	SKB_DROP_REASON_NO_SOCKET = 3,
	SKB_DROP_REASON_TCP_CSUM = 4,
	SKB_DROP_REASON_TCP_FLAGS = 27,
	SKB_DROP_REASON_TCP_LISTEN_OVERFLOW = 40,
	SKB_DROP_REASON_IP_OUTNOROUTES = 52,
	SKB_DROP_REASON_PSP_INPUT = 119, /* since 6.18 */
};

/* include/uapi/linux/bpf.h */
struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct request_sock;

/*
 * include/uapi/linux/bpf.h: part of the ABI. What a program at the packets of cgroups is given, up to the last field that is used; a load of one is
 * rewritten by the kernel, so it is relocated by nobody.
 */
struct bpf_sock;
struct __sk_buff {
	__u32 len; /* from the network's header on */
	__u32 others[41];
	struct bpf_sock *sk;
};

/* net/core/bpf_sk_storage.c; as bpf_iter_meta of vmlinux/kernel.h */
struct bpf_map;
struct sock;
struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk; /* NULL after the last */
	void *value;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* include/linux/types.h, include/net/net_namespace.h, include/linux/ns_common.h */
typedef struct {
	__s64 counter;
} atomic64_t;
struct ns_common {
	unsigned int inum;
};
struct net {
	struct ns_common ns;
};
typedef struct {
	struct net *net;
} possible_net_t;

/* include/uapi/linux/in6.h */
struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

/* include/linux/skbuff.h, include/uapi/linux/{ip,ipv6,tcp}.h: headers are at `head` plus an offset */
struct sk_buff_head {
	__u32 qlen;
};
struct sk_buff {
	struct sock *sk; /* of what is sent, or was sent to oneself */
	char cb[48]; /* of TCP, struct tcp_skb_cb */
	__be16 protocol;
	__u16 transport_header;
	__u16 network_header;
	__u32 end; /* an offset on all 64-bit machines */
	unsigned char *head;
};
/* At `head` plus `end`. */
struct skb_shared_info {
	unsigned short gso_segs;
};

/* include/net/sock.h; the anonymous unions of the kernel's are looked through by the relocation */
struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};
/* include/linux/pid.h: the first number is that of the first process-id namespace */
struct upid {
	int nr;
};
struct pid {
	struct upid numbers[1];
};
struct socket;
struct sock_cgroup_data {
	struct cgroup *cgroup; /* a pointer since 5.15 (commit 8520e224f547), cgroup v2 only */
};
struct sock {
	struct sock_common __sk_common;
	atomic_t sk_drops;
	struct sk_buff_head sk_receive_queue; /* of a Unix listener, its accept queue */
	struct socket *sk_socket;
	__u16 sk_type;
	__u16 sk_protocol;
	__u8 sk_shutdown;
	__u32 sk_ack_backlog;
	__u32 sk_max_ack_backlog;
	struct sock_cgroup_data sk_cgrp_data;
	struct pid *sk_peer_pid; /* of a Unix socket that listens, who called listen(2): init_peercred() */
};

/* include/net/inet_sock.h, include/net/inet_connection_sock.h, include/linux/tcp.h */
struct inet_sock {
	struct sock sk;
};
struct request_sock_queue {
	__u8 rskq_defer_accept; /* TCP_DEFER_ACCEPT, include/net/request_sock.h */
};
struct inet_connection_sock {
	struct inet_sock icsk_inet;
	struct request_sock_queue icsk_accept_queue;
};
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 copied_seq;
	__u32 rcv_nxt;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 write_seq;
	__u64 bytes_received;
	__u64 bytes_acked;
	__u64 tcp_clock_cache; /* CLOCK_MONOTONIC at the last segment in or out, tcp_mstamp_refresh() since 4.20 (commit 9799ccb0e984) */
};

/* net/ipv4/tcp_ipv4.c, kernel/bpf/map_iter.c */
struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};
struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key; /* NULL after the last */
	void *value;
};

#pragma clang attribute pop
#endif
