/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the memory hooks write per window: the truth that ebpf/src/memory.rs mirrors. Integers without padding.
 */
#ifndef TAILWATER_MEMORY_RECORDS_H
#define TAILWATER_MEMORY_RECORDS_H

#include "window.h"

/* A dirty-page pause is told before it is slept; it lasts 200 ms at most (MAX_PAUSE), so it ends in one of five windows. */
#define PAUSE_WINDOWS 5

enum memory_edge {
	MEMORY_RECLAIM, /* tasks in direct reclaim */
	MEMORY_EDGES,
};

/* The tasks of one cgroup, on one CPU. */
struct memory_record {
	__u64 window;
	struct edge_sum edges[MEMORY_EDGES];
	__u64 pause_ns[PAUSE_WINDOWS]; /* [k]: slept in the k-th window from here, of pauses that began here */
};
#endif
