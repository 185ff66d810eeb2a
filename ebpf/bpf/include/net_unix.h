/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Servers behind Unix stream sockets: their listeners, the connections that they accepted, and the connections that they refused. Owns
 * what an event on such a socket means; records, levels and turns are those of TCP.
 *
 * A listener is known from the first connection that it takes, by its bound address: the kernel shares that one structure between a
 * listener and all sockets that it accepts, so the pointer to it says whose a connection is. A slot's name has a hash of the path (with
 * the file system's device, because two containers may have the same path) in place of an IP address, under a prefix that nobody
 * routes (100::/64, RFC 6666), and port 0.
 *
 * Both ends are on this machine. So one entry, that of the accepted socket, holds the server's turn and the caller's call, and nothing
 * is kept for the socket that connected: it has no bound address, which is what keeps everybody else's chatter out after one read.
 *
 * No tracepoint tells that a Unix socket closes. What ends a request is what its server writes, also in vain (EPIPE), or that it
 * reads the end of what its client sent; what is left is found by a walk over the table (`net_unix_walk`), which user space reads every
 * second. How many connections are open is therefore not told.
 *
 * connect(2) to a listener whose queue is full fails with EAGAIN if it may not wait, and no hook sees that but this: the buffer that was
 * to carry the connection is freed, and belongs to a socket that never was connected. Such a one is told of the full listener that the
 * thread connected to last, or of the only one that is full.
 */
#ifndef TAILWATER_NET_UNIX_H
#define TAILWATER_NET_UNIX_H

#define AF_UNIX 1
#define SOCK_STREAM 1
#define RCV_SHUTDOWN 1
#define UNIX_PATH 108	      /* sun_path, unix(7) */
#define UNIX_LISTENERS 512    /* with those that are left alone */
#define UNIX_CONNECTIONS 8192 /* accepted and not known to be closed */
#define UNIX_CALLERS 4096     /* threads that connected lately */
#define UNIX_LEFT_ALONE (~0U) /* the slot of a listener that is the machine's own */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* include/linux/un.h, include/net/af_unix.h */
struct sockaddr_un {
	unsigned short sun_family;
	char sun_path[UNIX_PATH];
};
struct unix_address {
	int len; /* with the family, and the zero that ends a path */
	struct sockaddr_un name[];
};

/* include/linux/fs.h, include/linux/dcache.h, include/linux/path.h */
struct super_block {
	__u32 s_dev;
};
struct dentry {
	struct super_block *d_sb;
};
struct path {
	struct dentry *dentry;
};
struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
	struct path path;
};

#pragma clang attribute pop

/* What a slot of a Unix listener is bound to; `bytes` of an abstract name begin with a zero. */
struct unix_path {
	__u32 length;
	char bytes[UNIX_PATH];
};
ARRAY_OF(listener_paths, struct unix_path);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unix_path);
} unix_path_read SEC(".maps");

struct unix_listener {
	struct listen_socket socket;
	__u64 cookie;
	__u32 refused; /* connections, since it was taken in */
	__u32 told;    /* of those */
	__u32 full;    /* its queue was, at a push, and no look found room since */
	__u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, UNIX_LISTENERS);
	__type(key, __u64); /* its struct unix_address */
	__type(value, struct unix_listener);
} unix_listeners SEC(".maps");

struct unix_connection {
	struct connection turn; /* the server's; `cookie` of both is of the accepted socket */
	struct connection call; /* the caller's */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, UNIX_CONNECTIONS);
	__type(key, __u64); /* the accepted socket */
	__type(value, struct unix_connection);
} unix_connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, UNIX_CALLERS);
	__type(key, __u32); /* thread */
	__type(value, __u64); /* as the key of unix_listeners */
} unix_connected_last SEC(".maps");

/* Listeners whose queue is full, and the one that became so last. */
static __u32 unix_full;
static __u64 unix_full_last;

/*
 * Where a kernel has its Unix sockets in a module (CONFIG_UNIX=m), these types are in the module's type information alone, and such
 * sockets are not followed. What all kernels have is asked for as well, so that one whose types are known from before (tests/kernels/types
 * has a 5.15 that cannot be made anew everywhere) stays one that the programs can be held against.
 */
#define UNIX_TYPES                                                                                                       \
	(bpf_core_field_exists(struct unix_sock, addr) && bpf_core_field_exists(struct unix_sock, path.dentry) &&        \
	 bpf_core_field_exists(struct unix_address, len) && bpf_core_field_exists(struct unix_address, name) &&          \
	 bpf_core_field_exists(struct sockaddr_un, sun_path) && bpf_core_field_exists(struct dentry, d_sb) &&            \
	 bpf_core_field_exists(struct super_block, s_dev))

static __always_inline bool is_unix_stream(const struct sock *sk)
{
	return sk->__sk_common.skc_family == AF_UNIX && bpf_core_field_exists(sk->sk_type) && sk->sk_type == SOCK_STREAM;
}

/* What a socket is bound to, or was accepted through; 0 for one that connected. */
static __always_inline __u64 unix_address_of(const struct sock *sk)
{
	if (!bpf_core_field_exists(struct unix_sock, addr))
		return 0;
	return (__u64)BPF_CORE_READ((struct unix_sock *)sk, addr);
}

#define BEGINS(path, with) (!__builtin_memcmp((path)->bytes, with, sizeof(with) - 1))

/* The machine's own: buses, sessions and displays, whose messages are neither requests nor anybody's tier. */
static __always_inline bool is_left_alone(const struct unix_path *path)
{
	return BEGINS(path, "/run/systemd/") || BEGINS(path, "/run/dbus/") || BEGINS(path, "/var/run/dbus/") ||
	       BEGINS(path, "/run/user/") || BEGINS(path, "/run/udev/") || BEGINS(path, "/run/tailwater") ||
	       BEGINS(path, "/tmp/.X11-unix/") || BEGINS(path, "\0/tmp/.X11-unix/") || BEGINS(path, "\0/tmp/dbus-");
}

/* Reads what a listener is bound to; returns a hash of it that is never 0, or 0. */
static __noinline __u64 unix_path_of(const struct sock *sk, struct unix_path *path)
{
	struct unix_sock *u = (struct unix_sock *)sk;
	__u64 hash = 0xcbf29ce484222325ULL; /* FNV-1a */
	struct unix_address *addr;
	__u32 length, last;
	char *name;

	if (!UNIX_TYPES)
		return 0;
	addr = BPF_CORE_READ(u, addr);
	if (!addr)
		return 0;
	__builtin_memset(path, 0, sizeof(*path));
	length = (__u32)BPF_CORE_READ(addr, len) - sizeof(unsigned short);
	name = (char *)addr + bpf_core_field_offset(struct unix_address, name) +
	       bpf_core_field_offset(struct sockaddr_un, sun_path);
	if (!length || length > UNIX_PATH || bpf_probe_read_kernel(path->bytes, length, name))
		return 0;
	/* The zero that ends a path is no part of it; one that begins an abstract name is. */
	last = length - 1;
	if (path->bytes[0] && last && last < UNIX_PATH && !path->bytes[last])
		length = last;
	path->length = length;
	for (__u32 i = 0; i < UNIX_PATH; i++) {
		if (i >= length)
			break;
		hash = (hash ^ (__u8)path->bytes[i]) * 0x100000001b3ULL;
	}
	hash ^= (__u64)BPF_CORE_READ(u, path.dentry, d_sb, s_dev) << 32;
	return hash ? hash : 1;
}

static __always_inline void unix_end(const struct sock *sk, __u64 hash, struct listener_key *key)
{
	key->netns = sk->__sk_common.skc_net.net->ns.inum;
	key->port = 0;
	key->reserved = 0;
	key->address[0] = bpf_htonl(0x01000000);
	key->address[1] = 0;
	key->address[2] = (__u32)hash;
	key->address[3] = (__u32)(hash >> 32);
}

/* The process that called listen(2): of a pool its master, which knows the configuration; 0: not known. */
static __always_inline __u32 unix_listener_pid(const struct sock *sk)
{
	if (!bpf_core_field_exists(sk->sk_peer_pid) || !bpf_core_field_exists(struct pid, numbers[0].nr))
		return 0;
	return (__u32)BPF_CORE_READ(sk, sk_peer_pid, numbers[0].nr);
}

/* Takes a listener into the table, under what it is bound to. */
static __noinline struct unix_listener *unix_listener_enters(struct sock *sk, __u64 addr)
{
	struct unix_listener fresh = {};
	struct listener_key key = {};
	struct listener_level *level;
	struct listener_name *name;
	struct unix_path *path, *kept;
	__u32 zero = 0, slot;
	__u64 hash;

	path = bpf_map_lookup_elem(&unix_path_read, &zero);
	if (!path)
		return 0;
	hash = unix_path_of(sk, path);
	if (!hash)
		return 0;
	slot = UNIX_LEFT_ALONE;
	if (!is_left_alone(path)) {
		unix_end(sk, hash, &key);
		slot = listener_slot_of_listener(&key);
	}
	fresh.socket.sk = (__u64)sk;
	fresh.socket.slot = slot;
	fresh.cookie = bpf_get_socket_cookie(sk);
	if (bpf_map_update_elem(&unix_listeners, &addr, &fresh, BPF_NOEXIST)) {
		if (!bpf_map_lookup_elem(&unix_listeners, &addr))
			COUNT_LOSS(listen_sockets_untracked);
		return bpf_map_lookup_elem(&unix_listeners, &addr);
	}
	if (slot == UNIX_LEFT_ALONE)
		return bpf_map_lookup_elem(&unix_listeners, &addr);
	level = listener_level_of(slot);
	if (level)
		__sync_fetch_and_add(&level->sockets, 1);
	kept = bpf_map_lookup_elem(&listener_paths, &slot);
	name = bpf_map_lookup_elem(&listener_names, &slot);
	if (slot != SLOT_OTHER && kept && name) {
		/* Another socket at the same path is that of a server that was started again, maybe in another cgroup. */
		__sync_fetch_and_add(&name->generation, 1);
		*kept = *path;
		name->owner_cgroup = 0;
		name->owner_pid = unix_listener_pid(sk);
		name->owner_from_listen = name->owner_pid != 0;
		__sync_fetch_and_add(&name->generation, 1);
	}
	listener_found(slot, sk);
	return bpf_map_lookup_elem(&unix_listeners, &addr);
}

static __always_inline void unix_full_changes(__u64 addr, struct unix_listener *ul, __u32 full)
{
	if (ul->full == full || __sync_lock_test_and_set(&ul->full, full) == full)
		return;
	if (full)
		unix_full_last = addr;
	__sync_fetch_and_add(&unix_full, full ? 1 : -1);
}

static __always_inline void unix_refusals_told(struct hook *h, struct unix_listener *ul, struct sighting *seen)
{
	__u32 refused = *(volatile __u32 *)&ul->refused, told = ul->told;
	struct rise rise = { .count = refused - told, .packets = refused - told };
	struct listener_record *rec;

	if (!rise.count || __sync_val_compare_and_swap(&ul->told, told, refused) != told)
		return;
	rec = listener_now(h, ul->socket.slot);
	if (!rec)
		return;
	rec->drops += rise.count;
	report_drop(h, ul->socket.slot, rise, seen);
}

static __noinline void unix_listener_gone(struct hook *h, __u64 addr, struct unix_listener *ul)
{
	__u32 slot = ul->socket.slot;
	struct sighting seen = { .limit = ul->socket.limit };
	struct listener_level *level;
	struct listener_record *rec;
	__u32 limit, depth;

	if (slot != UNIX_LEFT_ALONE)
		unix_refusals_told(h, ul, &seen);
	unix_full_changes(addr, ul, 0);
	/* Whoever deletes it books it. */
	if (bpf_map_delete_elem(&unix_listeners, &addr) || slot == UNIX_LEFT_ALONE)
		return;
	level = listener_level_of(slot);
	rec = listener_now(h, slot);
	if (!level || !rec)
		return;
	limit = __sync_lock_test_and_set(&ul->socket.limit, 0);
	depth = __sync_lock_test_and_set(&ul->socket.depth, 0);
	__sync_fetch_and_add(&level->limit, -limit);
	__sync_fetch_and_add(&level->sockets, -1);
	step_level(&rec->edges[LISTENER_DEPTH], &level->levels[LISTENER_DEPTH], h, -(__s32)depth);
}

/* The edge of the running task to a listener. */
static __always_inline __u32 unix_edge(const struct sock *sk, __u32 slot)
{
	struct listener_name *name = bpf_map_lookup_elem(&listener_names, &slot);
	struct edge_key key = {};

	if (slot == SLOT_OTHER || !name)
		return SLOT_OTHER;
	key.cgroup = current_cgroup();
	key.netns = sk->__sk_common.skc_net.net->ns.inum;
	__builtin_memcpy(key.address, name->key.address, sizeof(key.address));
	return edge_slot_of(&key);
}

/* A task connected, and its connection is in the queue. */
static __noinline void unix_pushed(struct hook *h, struct sock *sk, __u64 addr)
{
	struct unix_listener *ul = bpf_map_lookup_elem(&unix_listeners, &addr);
	__u32 caller = (__u32)bpf_get_current_pid_tgid();
	struct sighting seen = { .pushed = true };
	struct listener_record *rec;
	struct edge_record *edge;

	if (ul && ul->cookie != (__u64)sk->__sk_common.skc_cookie.counter) {
		unix_listener_gone(h, addr, ul);
		ul = 0;
	}
	if (!ul)
		ul = unix_listener_enters(sk, addr);
	if (!ul || ul->socket.slot == UNIX_LEFT_ALONE)
		return;
	rec = listener_now(h, ul->socket.slot);
	if (rec)
		rec->arrivals++;
	seen.depth = sk->sk_receive_queue.qlen;
	seen.limit = sk->sk_max_ack_backlog;
	listener_sighted(h, &ul->socket, &seen);
	if (seen.depth > seen.limit)
		unix_full_changes(addr, ul, 1);
	bpf_map_update_elem(&unix_connected_last, &caller, &addr, BPF_ANY);
	edge = edge_now(h, unix_edge(sk, ul->socket.slot));
	if (edge) {
		edge->connects++;
		edge->established++;
	}
}

/* Ends what is under way. For a caller that is gone its call alone, while the server still works for it. */
static __always_inline void unix_call_ends(struct hook *h, struct unix_connection *u, __u32 how)
{
	if (u->call.phase == PHASE_ACTIVE &&
	    __sync_val_compare_and_swap(&u->call.phase, PHASE_ACTIVE, PHASE_IDLE) == PHASE_ACTIVE)
		call_ended(h, &u->call, how);
}

static __always_inline void unix_turn_ends(struct hook *h, struct unix_connection *u, __u32 how)
{
	if (u->turn.phase == PHASE_ACTIVE &&
	    __sync_val_compare_and_swap(&u->turn.phase, PHASE_ACTIVE, PHASE_IDLE) == PHASE_ACTIVE)
		request_ended(h, &u->turn, how);
}

static __noinline void unix_connection_gone(struct hook *h, __u64 sk, struct unix_connection *u)
{
	unix_turn_ends(h, u, ENDED_ABORTED);
	unix_call_ends(h, u, ENDED_ABORTED);
	unread_ended(h, &u->turn);
	bpf_map_delete_elem(&unix_connections, &sk);
}

static __noinline struct unix_connection *unix_connection_enters(struct hook *h, struct sock *sk, __u64 addr)
{
	struct unix_listener *ul = bpf_map_lookup_elem(&unix_listeners, &addr);
	struct unix_connection fresh = {};
	__u64 at = (__u64)sk;

	if (!ul || ul->socket.slot == UNIX_LEFT_ALONE)
		return 0;
	fresh.turn.slot = ul->socket.slot;
	fresh.turn.role = ROLE_ACCEPTED;
	fresh.turn.cookie = bpf_get_socket_cookie(sk);
	fresh.call.cookie = fresh.turn.cookie;
	/* In the queue since a moment ago; of one that was accepted before it is not known. */
	fresh.turn.established_ns = sk->sk_socket ? 0 : h->mono_ns;
	if (bpf_map_update_elem(&unix_connections, &at, &fresh, BPF_NOEXIST) && !bpf_map_lookup_elem(&unix_connections, &at))
		COUNT_LOSS(connections_untracked);
	return bpf_map_lookup_elem(&unix_connections, &at);
}

/* The entry of an accepted socket; a new one, if its listener is known. */
static __always_inline struct unix_connection *unix_connection_of(struct hook *h, struct sock *sk, __u64 addr)
{
	__u64 at = (__u64)sk;
	struct unix_connection *u = bpf_map_lookup_elem(&unix_connections, &at);

	if (u && u->turn.cookie == (__u64)sk->__sk_common.skc_cookie.counter)
		return u;
	if (u)
		unix_connection_gone(h, at, u);
	return unix_connection_enters(h, sk, addr);
}

/* A caller wrote to an accepted socket, and runs. */
static __noinline void unix_asked(struct hook *h, struct sock *sk, __u64 addr)
{
	struct unix_connection *u = unix_connection_of(h, sk, addr);

	if (!u)
		return;
	if (u->call.role == ROLE_NEW) {
		u->call.slot = unix_edge(sk, u->turn.slot);
		u->call.role = ROLE_CONNECTED;
	}
	/* Read and answered already, before this hook ran. */
	if (!sk->sk_receive_queue.qlen && u->turn.phase == PHASE_IDLE)
		return;
	if (u->call.phase == PHASE_IDLE)
		call_began(h, &u->call, 0);
	if (u->turn.phase != PHASE_IDLE || u->turn.unread != UNREAD_NONE)
		return;
	unread_began(h, &u->turn, sk->sk_socket ? UNREAD_ACCEPTED : UNREAD_QUEUED);
}

/* The caller is closed, not only half: unix_release_sock() shuts both ways of its peer. */
static __always_inline bool unix_caller_is_gone(const struct sock *sk)
{
	return BPF_CORE_READ(sk, sk_shutdown) == SHUTDOWN_MASK;
}

/* The server read from an accepted socket, or its end. */
static __noinline void unix_read(struct hook *h, struct sock *sk, __u64 addr, int length)
{
	struct unix_connection *u = unix_connection_of(h, sk, addr);
	__u32 unread;

	if (!u)
		return;
	if (length <= 0) {
		if (unix_caller_is_gone(sk))
			unix_connection_gone(h, (__u64)sk, u);
		return;
	}
	unread = unread_taken(&u->turn);
	if (!u->turn.used)
		first_use(h, &u->turn, unread == UNREAD_QUEUED);
	if (u->turn.phase == PHASE_ACTIVE)
		unread_off(h, &u->turn, unread); /* more of the same request */
	else
		request_began(h, &u->turn, 0, unread);
}

/* The server wrote to an accepted socket, or tried to. */
static __noinline void unix_answered(struct hook *h, struct sock *sk, __u64 addr, int length)
{
	struct unix_connection *u = unix_connection_of(h, sk, addr);
	__u32 how = length > 0 ? ENDED_ANSWERED : ENDED_ABORTED;

	if (!u)
		return;
	if (length > 0) {
		/* As is_unasked() for TCP: a farewell at a time-out is no part of an answer. */
		bool unasked = length < UNASKED_BYTES && elapsed_ns(u->turn.directions.out.at_ns, h->mono_ns) > UNASKED_NS;

		u->turn.directions.out.at_ns = h->mono_ns;
		if (!unasked && u->turn.phase == PHASE_IDLE && u->turn.bounds)
			answer_went_on(h, &u->turn);
	}
	unix_turn_ends(h, u, how);
	unix_call_ends(h, u, how);
}

/* A socket of a family that is not TCP has data, or a connection. */
static __always_inline int unix_data_ready(const struct sock *sk)
{
	struct hook h;
	__u64 addr;

	if (!is_unix_stream(sk))
		return 0;
	addr = unix_address_of(sk);
	if (!addr)
		return 0;
	hook_enter(&h);
	if (sk->__sk_common.skc_state == TCP_LISTEN)
		unix_pushed(&h, (struct sock *)sk, addr);
	else
		unix_asked(&h, (struct sock *)sk, addr);
	hook_exit(&h);
	return 0;
}

static __always_inline int unix_received(struct sock *sk, int length)
{
	struct hook h;
	__u64 addr;

	if (!is_unix_stream(sk) || (length <= 0 && !(sk->sk_shutdown & RCV_SHUTDOWN)))
		return 0;
	addr = unix_address_of(sk);
	if (!addr)
		return 0;
	hook_enter(&h);
	unix_read(&h, sk, addr, length);
	hook_exit(&h);
	return 0;
}

static __always_inline int unix_sent(struct sock *sk, int length)
{
	struct hook h;
	__u64 addr;

	if (!is_unix_stream(sk) || !length || length == -EAGAIN)
		return 0;
	addr = unix_address_of(sk);
	if (!addr)
		return 0;
	hook_enter(&h);
	unix_answered(&h, sk, addr, length);
	hook_exit(&h);
	return 0;
}

/* The queue of a listener in the table, as it is now. */
static long sample_unix_listener(void *map, __u64 *addr, struct unix_listener *ul, struct hook *h)
{
	struct sock *sk = (struct sock *)ul->socket.sk;
	struct sighting seen = {};
	__u64 cookie = 0;
	__u8 state = 0;

	if (!bpf_core_field_exists(sk->sk_receive_queue.qlen))
		return 0;
	bpf_core_read(&seen.depth, sizeof(seen.depth), &sk->sk_receive_queue.qlen);
	bpf_core_read(&seen.limit, sizeof(seen.limit), &sk->sk_max_ack_backlog);
	bpf_core_read(&state, sizeof(state), &sk->__sk_common.skc_state);
	/* Last: the reads count only if the socket was the same to their end. */
	bpf_core_read(&cookie, sizeof(cookie), &sk->__sk_common.skc_cookie.counter);
	if (state != TCP_LISTEN || cookie != ul->cookie) {
		unix_listener_gone(h, *addr, ul);
		return 0;
	}
	if (ul->socket.slot == UNIX_LEFT_ALONE)
		return 0;
	listener_sighted(h, &ul->socket, &seen);
	unix_full_changes(*addr, ul, seen.depth > seen.limit);
	unix_refusals_told(h, ul, &seen);
	return 0;
}

static __always_inline void sample_unix_listeners(struct hook *h)
{
	bpf_for_each_map_elem(&unix_listeners, sample_unix_listener, h, 0);
}

/* The full listener that the running thread wanted to connect to; 0: not known. */
static __always_inline struct unix_listener *unix_refusing(void)
{
	__u32 caller = (__u32)bpf_get_current_pid_tgid();
	__u64 *last = bpf_map_lookup_elem(&unix_connected_last, &caller), addr;
	struct unix_listener *ul;

	if (last) {
		addr = *last;
		ul = bpf_map_lookup_elem(&unix_listeners, &addr);
		if (ul && ul->full)
			return ul;
	}
	if (unix_full != 1)
		return 0;
	addr = unix_full_last;
	ul = bpf_map_lookup_elem(&unix_listeners, &addr);
	return ul && ul->full ? ul : 0;
}

/*
 * A buffer is freed. That of a connection that came to nothing belongs to the socket that would have been accepted: it is of this
 * family, was never connected and is not shut down yet (one that was connected and closed is).
 */
static __always_inline int unix_buffer_freed(const struct sk_buff *skb)
{
	struct unix_listener *ul;
	struct sock *sk;

	if (!unix_full || !bpf_core_field_exists(skb->sk) || !bpf_core_field_exists(struct sock, sk_type))
		return 0;
	sk = skb->sk;
	/* It gets its type when it is connected; datagrams belong to sockets that have one. */
	if (!sk || sk->__sk_common.skc_family != AF_UNIX || sk->sk_type > SOCK_STREAM ||
	    sk->__sk_common.skc_state != TCP_CLOSE || sk->sk_shutdown)
		return 0;
	ul = unix_refusing();
	if (ul)
		__sync_fetch_and_add(&ul->refused, 1);
	else
		COUNT_LOSS(unix_refusals_unnamed);
	return 0;
}

/* Whether the entry's socket is closed, or its caller; what is under way then ends here. */
static __always_inline void unix_connection_looked_at(struct hook *h, __u64 at, struct unix_connection *u)
{
	struct sock *sk = (struct sock *)at;
	__u64 cookie = 0;
	__u8 state = 0;
	bool left;

	bpf_core_read(&state, sizeof(state), &sk->__sk_common.skc_state);
	left = unix_caller_is_gone(sk);
	bpf_core_read(&cookie, sizeof(cookie), &sk->__sk_common.skc_cookie.counter);
	if (state != TCP_ESTABLISHED || cookie != u->turn.cookie)
		unix_connection_gone(h, at, u);
	else if (left)
		unix_call_ends(h, u, ENDED_ABORTED);
}
#endif
