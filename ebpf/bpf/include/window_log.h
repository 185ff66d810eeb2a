/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The log of 50 ms windows: where signals of many entities (cgroups, listeners, edges, devices) keep their records. Knows no signal.
 *
 * A ring for each writer and entity (window.h) needs room for CPUs x entities x windows, of which nearly nothing is ever written: on
 * 128 CPUs it had room for 62 cgroups. Here a writer keeps one log. The first event of an entity in a window takes the log's next
 * entry, and what a log must hold is what is active, however many CPUs and entities a machine has. User space reads what was
 * appended since it last looked, and nothing else.
 *
 * A *copy* is one writer's view of one entity: writer * entities + entity. Its *head* says which entry is its newest, and keeps its
 * levels while it has none: whoever takes the entry of another copy writes down that copy's levels before. An entry is a copy's own
 * while it names it, so a head never needs to be told.
 *
 * A record may be used until its writer opens another one: then its entry may be taken, if the log is as short as one window is busy.
 */
#ifndef TAILWATER_WINDOW_LOG_H
#define TAILWATER_WINDOW_LOG_H

#include "window.h"

/* Programs that interrupt another one on their CPU are rare: their logs are so much shorter. */
#define LOG_NESTED_PART 8
#define LOG_BEING_RESET (~0ULL)
#define LOG_NO_ENTRY (~0U)

/* How many entries a writer ever took; a cache line of its own. */
struct log_end {
	__u64 taken;
	__u64 reserved[7];
};

#define LOG_MAP(name, value_type)                                                                                        \
	struct {                                                                                                         \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                        \
		__uint(map_flags, BPF_F_MMAPABLE);                                                                       \
		__uint(max_entries, 1);                                                                                  \
		__type(key, __u32);                                                                                      \
		__type(value, value_type);                                                                               \
	} name SEC(".maps")

/*
 * LOG(name, record, nest) declares the maps `name_entries`, `name_heads` and `name_ends`, the setting `name_records` (entries of a
 * writer that interrupts nobody), and
 *     struct record *name_at(__u32 writer, __u32 copy, struct moment *m)
 * which returns the record of the moment; `nest` is NEST, or 1 for hooks that do not interrupt each other. What a record begins
 * with, and when the moment is moved, is said at RING in window.h.
 *
 * An entry is taken with an atomic, so that a program that is preempted by another of its CPU cannot share one with it. Taking is a
 * sequence lock, as in window.h. It is a global function, which the verifier walks once.
 */
#define LOG(name, record_type, nest)                                                                                     \
	const volatile __u32 name##_records = 64;                                                                        \
	struct name##_entry {                                                                                            \
		__u64 position; /* of the use that it has now, counted from 1 */                                         \
		__u32 copy; /* whose, plus 1 */                                                                          \
		__u32 reserved;                                                                                          \
		struct record_type record;                                                                               \
	};                                                                                                               \
	struct name##_head {                                                                                             \
		__u32 entry;                                                                                             \
		__s32 levels[sizeof(((struct record_type *)0)->edges) / sizeof(struct edge_sum)];                        \
	};                                                                                                               \
	LOG_MAP(name##_entries, struct name##_entry);                                                                    \
	LOG_MAP(name##_heads, struct name##_head);                                                                       \
	LOG_MAP(name##_ends, struct log_end);                                                                            \
	/* Returns the index of the copy's entry for the window, or for a later one that the copy is in already. */      \
	__noinline __u32 name##_turn(__u32 writer, __u32 copy, __u64 window)                                             \
	{                                                                                                                \
		enum { EDGES = sizeof(((struct name##_head *)0)->levels) / sizeof(__s32) };                              \
		__u32 cpu = writer / (nest), level = writer % (nest), few = name##_records / LOG_NESTED_PART;            \
		__u32 size = level ? few : name##_records, whose, at;                                                    \
		__u32 first = cpu * (name##_records + ((nest) - 1) * few) + (level ? name##_records + (level - 1) * few : 0); \
		struct log_end *end = bpf_map_lookup_elem(&name##_ends, &writer);                                        \
		struct name##_head *head = bpf_map_lookup_elem(&name##_heads, &copy), *theirs;                           \
		struct name##_entry *entry;                                                                              \
		__u64 position;                                                                                          \
                                                                                                                         \
		if (!end || !head)                                                                                       \
			return LOG_NO_ENTRY;                                                                             \
		at = head->entry;                                                                                        \
		entry = bpf_map_lookup_elem(&name##_entries, &at);                                                       \
		if (entry && entry->copy == copy + 1) {                                                                  \
			__u64 newest = entry->record.window;                                                             \
                                                                                                                         \
			if (newest > window && newest - window < WINDOWS)                                                \
				return at;                                                                               \
			_Pragma("unroll") for (int i = 0; i < EDGES; i++) head->levels[i] =                              \
				entry->record.edges[i].level_start + entry->record.edges[i].carry;                       \
		}                                                                                                        \
		position = __sync_fetch_and_add(&end->taken, 1) + 1;                                                     \
		at = first + (__u32)(position % size);                                                                   \
		entry = bpf_map_lookup_elem(&name##_entries, &at);                                                       \
		if (!entry)                                                                                              \
			return LOG_NO_ENTRY;                                                                             \
		if (entry->copy && entry->copy != copy + 1) {                                                            \
			whose = entry->copy - 1;                                                                         \
			theirs = bpf_map_lookup_elem(&name##_heads, &whose);                                             \
			if (theirs && theirs->entry == at) {                                                             \
				_Pragma("unroll") for (int i = 0; i < EDGES; i++) theirs->levels[i] =                    \
					entry->record.edges[i].level_start + entry->record.edges[i].carry;               \
			}                                                                                                \
		}                                                                                                        \
		__sync_lock_test_and_set(&entry->position, LOG_BEING_RESET);                                             \
		entry->copy = copy + 1;                                                                                  \
		__builtin_memset(&entry->record, 0, sizeof(entry->record));                                              \
		_Pragma("unroll") for (int i = 0; i < EDGES; i++) entry->record.edges[i].level_start = head->levels[i];  \
		entry->record.window = window;                                                                           \
		__sync_lock_test_and_set(&entry->position, position);                                                    \
		head->entry = at;                                                                                        \
		return at;                                                                                               \
	}                                                                                                                \
	static __always_inline struct record_type *name##_at(__u32 writer, __u32 copy, struct moment *m)                 \
	{                                                                                                                \
		struct name##_head *head = bpf_map_lookup_elem(&name##_heads, &copy);                                    \
		struct name##_entry *entry;                                                                              \
		__u32 at;                                                                                                \
                                                                                                                         \
		if (!head)                                                                                               \
			return 0;                                                                                        \
		at = head->entry;                                                                                        \
		entry = bpf_map_lookup_elem(&name##_entries, &at);                                                       \
		if (entry && entry->copy == copy + 1 && entry->record.window == m->window)                               \
			return &entry->record;                                                                           \
		at = name##_turn(writer, copy, m->window);                                                               \
		entry = bpf_map_lookup_elem(&name##_entries, &at);                                                       \
		if (!entry)                                                                                              \
			return 0;                                                                                        \
		if (entry->record.window != m->window)                                                                   \
			move_to_window(m, entry->record.window);                                                         \
		return &entry->record;                                                                                   \
	}
#endif
