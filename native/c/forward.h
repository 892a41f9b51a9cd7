/* The loop around a network function: receive a burst, process it, send it, count. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <immintrin.h>
#include <rte_branch_prediction.h>
#include <rte_byteorder.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_memcpy.h>
#include <rte_prefetch.h>

#define BURST 32
/* Packets ahead whose header and first bytes are fetched. */
#define AHEAD 8

/* Zeroed memory for a table, in huge pages where there are any; bytes are whole ones. */
static inline void *table_new(size_t bytes)
{
	void *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (table == MAP_FAILED) {
		table = aligned_alloc(2 << 20, bytes);
		madvise(table, bytes, MADV_HUGEPAGE);
	}
	memset(table, 0, bytes);
	return table;
}

/* From either kind of memory. */
static inline void table_free(void *table, size_t bytes)
{
	madvise(table, bytes, MADV_DONTNEED);
	munmap(table, bytes);
}

/* What every lcore of a DPDK application counts. */
struct counts {
	uint64_t received, sent, tx_full;
	uint64_t dropped[4];
};

/* Bytes 22 to 25 and 30 to 33 of an IPv4 frame. */
struct fresh {
	uint32_t ttl_protocol_checksum, dst;
};

/* Bytes 38 to 53 of an IPv6 frame. */
struct fresh6 {
	uint8_t dst[16];
};

/* Bytes 22 to 37 of an IPv4 frame: time to live, protocol, checksum, addresses, ports. */
struct fresh_flow {
	uint8_t bytes[16];
};

/* Bytes 0 to 15 of a frame: both MAC addresses, and what follows. */
struct fresh_macs {
	uint8_t bytes[16];
};

/* A port: an ethdev queue, or packets that go round in memory (slots a power of two, the same array on both sides),
 * called through a pointer as an ethdev's burst functions are, here and in Rust. */
struct port {
	uint16_t ethdev;
	struct rte_mbuf **slots; /* NULL: an ethdev */
	uint32_t mask, head, tail;
	const void *fresh; /* of struct fresh, fresh6, fresh_flow or fresh_macs; NULL: packets are received as they were sent */
	uint32_t fresh_mask, at;
	uint64_t front; /* with fresh: the first eight bytes of every frame */
	uint64_t ip;	/* with fresh6: the first eight bytes of every IPv6 header; with FRESH_WHOLE: the next eight of every frame */
};

/* What a port is: all but the first two have fresh; FRESH_WHOLE also loses what was put in front of packets. */
enum { ETHDEV, MEMORY, FRESH, FRESH6, FRESH_FLOW, FRESH_WHOLE, FRESH_MACS };

uint16_t memory_receive(struct port *port, struct rte_mbuf **p, uint16_t n);
uint16_t memory_transmit(struct port *port, struct rte_mbuf **p, uint16_t n);
extern uint16_t (*volatile memory_rx_fresh)(struct port *, struct rte_mbuf **, uint16_t);
extern uint16_t (*volatile memory_rx_fresh6)(struct port *, struct rte_mbuf **, uint16_t);
extern uint16_t (*volatile memory_rx_fresh_flow)(struct port *, struct rte_mbuf **, uint16_t);
extern uint16_t (*volatile memory_rx_fresh_whole)(struct port *, struct rte_mbuf **, uint16_t);
extern uint16_t (*volatile memory_rx_fresh_macs)(struct port *, struct rte_mbuf **, uint16_t);
extern uint16_t (*volatile memory_rx_burst)(struct port *, struct rte_mbuf **, uint16_t);
extern uint16_t (*volatile memory_tx_burst)(struct port *, struct rte_mbuf **, uint16_t);

/* Processes n packets; keeps those that go on at the front, in order, and returns how many. */
typedef uint16_t (*nf_fn)(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state);

static __rte_always_inline uint16_t receive(struct port *port, struct rte_mbuf **p, int kind)
{
	if (kind == FRESH)
		return memory_rx_fresh(port, p, BURST);
	if (kind == FRESH6)
		return memory_rx_fresh6(port, p, BURST);
	if (kind == FRESH_FLOW)
		return memory_rx_fresh_flow(port, p, BURST);
	if (kind == FRESH_WHOLE)
		return memory_rx_fresh_whole(port, p, BURST);
	if (kind == FRESH_MACS)
		return memory_rx_fresh_macs(port, p, BURST);
	return kind == MEMORY ? memory_rx_burst(port, p, BURST) : rte_eth_rx_burst(port->ethdev, 0, p, BURST);
}

static __rte_always_inline uint16_t transmit(struct port *port, struct rte_mbuf **p, uint16_t n, int kind)
{
	return kind != ETHDEV ? memory_tx_burst(port, p, n) : rte_eth_tx_burst(port->ethdev, 0, p, n);
}

/* Takes bursts in turn from a to b and from b to a. */
static __rte_always_inline void forward(struct port *a, struct port *b, uint32_t bursts, struct counts *c, nf_fn nf, void *state, int kind)
{
	struct rte_mbuf *p[BURST] __rte_cache_aligned;
	for (uint32_t k = 0; k < bursts; k++) {
		struct port *rx = k & 1 ? b : a, *tx = k & 1 ? a : b;
		uint16_t n = receive(rx, p, kind);
		if (unlikely(n == 0))
			continue;
		c->received += n;
		n = nf(p, n, c, state);
		uint16_t sent = transmit(tx, p, n, kind);
		c->sent += sent;
		if (unlikely(sent < n)) {
			c->tx_full += n - sent;
			rte_pktmbuf_free_bulk(p + sent, n - sent);
		}
	}
}

/* A network function as three loops, one for each kind of port; what is fresh is of the kind it takes. */
#define NETWORK_FUNCTION(name, nf) NETWORK_FUNCTION_ON(name, nf, FRESH)
#define NETWORK_FUNCTION_ON(name, nf, of_fresh)                                                                      \
	void native_##name(struct port *a, struct port *b, uint32_t bursts, struct counts *c, void *state)           \
	{                                                                                                            \
		if (a->fresh != NULL)                                                                                \
			forward(a, b, bursts, c, nf, state, of_fresh);                                               \
		else if (a->slots != NULL)                                                                           \
			forward(a, b, bursts, c, nf, state, MEMORY);                                                 \
		else                                                                                                 \
			forward(a, b, bursts, c, nf, state, ETHDEV);                                                 \
	}

/* Fetches a packet's header line and first bytes, assuming the standard headroom so as not to wait for the header. */
static __rte_always_inline void fetch(struct rte_mbuf **p, uint16_t i, uint16_t n)
{
	if (i + AHEAD < n) {
		rte_prefetch0(p[i + AHEAD]);
		rte_prefetch0((char *)p[i + AHEAD] + sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM);
	}
}

/* As fetch, for the packets that no other is AHEAD of. */
static __rte_always_inline void fetch_first(struct rte_mbuf **p, uint16_t n)
{
	for (uint16_t i = 0; i < AHEAD && i < n; i++) {
		rte_prefetch0(p[i]);
		rte_prefetch0((char *)p[i] + sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM);
	}
}

/* Takes the marked packets out of the burst and frees them together. */
static __rte_noinline uint16_t discard(struct rte_mbuf **p, uint16_t n, uint32_t gone)
{
	struct rte_mbuf *out[BURST];
	uint16_t kept = 0, freed = 0;
	for (uint16_t i = 0; i < n; i++)
		if (gone & 1u << i)
			out[freed++] = p[i];
		else
			p[kept++] = p[i];
	rte_pktmbuf_free_bulk(out, freed);
	return kept;
}
