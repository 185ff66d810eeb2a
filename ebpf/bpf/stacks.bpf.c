// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Where the code of threads was that had a CPU: some 50 times a second on each CPU, the last seconds of it. Owns the ring of these samples; knows no
 * function's name and no window. User space reads it only when something stands or is short of CPU, for the time before.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "price.h"
#include "rest.h"
#include "cgroup.h"
#include "stacks_records.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Samples that are kept of each CPU: a power of two. */
const volatile __u32 cfg_samples = 1;
/* Bytes of struct pt_regs, and where in it the stack pointer is. 0: stacks are not copied. */
const volatile __u32 cfg_registers_bytes = 0;
const volatile __u32 cfg_stack_pointer_at = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_sample);
} stack_samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_copy);
} stack_copies SEC(".maps");

/* How many samples a CPU has written, and when the next one is due. */
struct stack_head {
	__u64 written;
	__u64 due_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_head);
} stack_heads SEC(".maps");

/* As much of the stack as is there: near its bottom less than a copy holds. */
static __always_inline __u32 copy_stack(struct stack_copy *copy, const void *stack_pointer)
{
	if (!bpf_probe_read_user(copy->stack, STACK_BYTES, stack_pointer))
		return STACK_BYTES;
	if (!bpf_probe_read_user(copy->stack, STACK_BYTES / 4, stack_pointer))
		return STACK_BYTES / 4;
	if (!bpf_probe_read_user(copy->stack, STACK_BYTES / 16, stack_pointer))
		return STACK_BYTES / 16;
	return 0;
}

static __always_inline __u32 copy_of(struct task_struct *task, __u32 at)
{
	struct stack_copy *copy;
	__u64 stack_pointer = 0;
	const void *registers;

	/* 0 on architectures of which user space does not know the registers. */
	if (!cfg_registers_bytes || cfg_registers_bytes > REGISTERS_BYTES || task->flags & PF_KTHREAD)
		return 0;
	copy = bpf_map_lookup_elem(&stack_copies, &at);
	registers = (const void *)bpf_task_pt_regs(task);
	if (!copy || !registers || bpf_probe_read_kernel(copy->registers, cfg_registers_bytes, registers) ||
	    bpf_probe_read_kernel(&stack_pointer, sizeof(stack_pointer), registers + cfg_stack_pointer_at))
		return 0;
	return copy_stack(copy, (const void *)stack_pointer);
}

static __always_inline int sampled(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 cpu = bpf_get_smp_processor_id(), at;
	struct stack_sample *sample;
	struct stack_head *head;
	__u64 now_ns;
	long bytes;

	/* The idle thread has no process. */
	if (resting || !task->tgid)
		return 0;
	head = bpf_map_lookup_elem(&stack_heads, &cpu);
	now_ns = bpf_ktime_get_ns();
	if (!head || now_ns < head->due_ns)
		return 0;
	head->due_ns = now_ns + SAMPLED_NS;
	at = cpu * cfg_samples + ((__u32)head->written & (cfg_samples - 1));
	sample = bpf_map_lookup_elem(&stack_samples, &at);
	if (!sample)
		return 0;
	__sync_lock_test_and_set(&sample->sequence, 0);
	sample->mono_ns = now_ns;
	sample->cgroup_id = cgroup_id_of(task);
	sample->tgid = task->tgid;
	sample->tid = task->pid;
	bpf_probe_read_kernel(sample->comm, sizeof(sample->comm), task->group_leader->comm);
	bytes = bpf_get_stack(ctx, sample->calls, sizeof(sample->calls), BPF_F_USER_STACK);
	sample->frames = bytes > 0 ? bytes / sizeof(__u64) : 0;
	sample->copied = copy_of(task, at);
	__sync_lock_test_and_set(&sample->sequence, ++head->written);
	return 0;
}

/*
 * The tick of a CPU that works is a timer like others. An event of perf would come as often on one that idles, and wake it; and kernels of
 * Debian give it to CAP_SYS_ADMIN alone (kernel.perf_event_paranoid is 3 there).
 */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_timer)
{
	return PRICED(sampled(ctx));
}

/* Processes whose threads are looked at: user space puts them in before it walks, and takes them out again. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOOKED_AT);
	__type(key, __u32);
	__type(value, __u32);
} looked_at SEC(".maps");

static __noinline int waits_told(struct seq_file *seq, const struct waiting_thread *told)
{
	return bpf_seq_write(seq, told, sizeof(*told));
}

/* Their threads that wait. /proc tells where those are, and not what their callers are found by: the frame pointer. */
SEC("iter/task")
int stack_waiting(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct waiting_thread told = {};
	const void *registers;

	if (!task || !cfg_registers_bytes || cfg_registers_bytes > REGISTERS_BYTES || task->flags & PF_KTHREAD)
		return 0;
	told.tgid = task->tgid;
	told.tid = task->pid;
	/* Whoever runs, or is about to, has others by now. */
	if (!bpf_map_lookup_elem(&looked_at, &told.tgid) || !task->__state)
		return 0;
	registers = (const void *)bpf_task_pt_regs(task);
	if (registers && !bpf_probe_read_kernel(told.registers, cfg_registers_bytes, registers))
		waits_told(ctx->meta->seq, &told);
	return 0;
}
