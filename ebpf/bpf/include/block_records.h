/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the block hooks write per window: the truth that ebpf/src/block.rs mirrors. Every struct is integers without padding.
 */
#ifndef TAILWATER_BLOCK_RECORDS_H
#define TAILWATER_BLOCK_RECORDS_H

#include "window.h"

#define IO_SUBMITTERS 8

enum device_edge {
	DEVICE_IN_FLIGHT,
	DEVICE_EDGES,
};

/* One block device. */
struct device_record {
	__u64 window;
	struct edge_sum edges[DEVICE_EDGES];
	__u64 bytes; /* completed */
	__u64 latency_ns; /* from queued, or issued where that is all that is told, to done */
	__u64 latency_max_ns;
	__u32 in_flight_max;
	__u32 issued;
	__u32 completed;
	__u32 flushes;
};

/* What one cgroup submitted. */
struct io_record {
	__u64 window;
	struct edge_sum edges[0];
	__u64 bytes;
	__u32 requests;
	__u32 flushes;
};

/* Space-saving: the true value lies in [bytes - over_bytes, bytes]. */
struct submitter {
	__u64 bytes;
	__u64 over_bytes;
	__u32 tgid;
	__u32 slot;
	char comm[16];
};

/* Who submitted. */
struct submitters_record {
	__u64 window;
	struct edge_sum edges[0];
	struct submitter submitters[IO_SUBMITTERS];
};

struct device_state {
	__u32 device; /* major << 20 | minor; 0: not in use */
	__s32 in_flight; /* of all CPUs, now */
};

/* Counters of what could not be followed. */
struct block_losses {
	__u64 untracked; /* requests for which the table had no room */
	__u64 stale; /* requests whose end was never told, found when their memory was used again */
};
#endif
