/* The part of libdpdk that Bondstone uses. Structures whose layout differs between releases stay behind these functions.
 * Functions that return int return a negative errno on failure. */
#include <stddef.h>
#include <stdint.h>
#include <rte_config.h>
#include <rte_version.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ethdev.h>

/* Offsets, in this release, of the fields of packet::Mbuf. */
enum {
	BS_MBUF_SIZE = sizeof(struct rte_mbuf),
	BS_OFF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	BS_OFF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	BS_OFF_REFCNT = offsetof(struct rte_mbuf, refcnt),
	BS_OFF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	BS_OFF_PORT = offsetof(struct rte_mbuf, port),
	BS_OFF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	BS_OFF_PACKET_TYPE = offsetof(struct rte_mbuf, packet_type),
	BS_OFF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	BS_OFF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	BS_OFF_VLAN_TCI = offsetof(struct rte_mbuf, vlan_tci),
	BS_OFF_RSS = offsetof(struct rte_mbuf, hash.rss),
	BS_OFF_VLAN_TCI_OUTER = offsetof(struct rte_mbuf, vlan_tci_outer),
	BS_OFF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	BS_OFF_POOL = offsetof(struct rte_mbuf, pool),
	BS_OFF_NEXT = offsetof(struct rte_mbuf, next),
	BS_OFF_TX_OFFLOAD = offsetof(struct rte_mbuf, tx_offload),
	BS_OFF_SHINFO = offsetof(struct rte_mbuf, shinfo),
	BS_OFF_PRIV_SIZE = offsetof(struct rte_mbuf, priv_size),
	BS_OFF_TIMESYNC = offsetof(struct rte_mbuf, timesync),
	BS_OFF_DYNFIELD = offsetof(struct rte_mbuf, dynfield1),
	BS_HEADROOM = RTE_PKTMBUF_HEADROOM,
	BS_RSS_HASH_BIT = 1, /* RTE_MBUF_F_RX_RSS_HASH is 1 << this; shim.c asserts it */
};

int bs_errno(void);
unsigned bs_lcore_id(void);

/* Starts the EAL; argv must stay valid for the life of the process. */
int bs_eal_init(int argc, char **argv);
/* Redirects DPDK's log into memory. */
int bs_log_capture(void);
/* Moves the captured log into buf, NUL-terminated; keeps the end of a log that is too long. Returns its length. */
size_t bs_log_take(char *buf, size_t room);
/* Reserves the dynamic field at `offset` (`size` bytes) and the dynamic flags at the bits `timestamp_bit` and `metadata_bit`. */
int bs_reserve_dynamic(size_t offset, size_t size, unsigned timestamp_bit, unsigned metadata_bit);

/* Creates a pool of n mbufs with `room` bytes of data, headroom included. `spread` allows an mbuf to cross a page: without
 * huge pages, one mbuf per 4 KiB page would put all headers into one L1 set. Returns NULL and sets rte_errno on failure. */
struct rte_mempool *bs_pool_create(const char *name, unsigned n, unsigned cache, uint16_t room, int spread);
struct rte_mbuf *bs_alloc(struct rte_mempool *pool);
int bs_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **at, unsigned n);
/* Returns n direct, single-segment mbufs with one reference to their pools, which may differ. */
void bs_free(struct rte_mbuf **at, unsigned n);
/* The result of bs_linearize: mbufs left at the front, mbufs copied among these, mbufs freed because they exceed a buffer. */
struct bs_linearized {
	unsigned kept, copied, too_long;
};
/* Copies received mbufs that are not direct, single-segment and unshared into one buffer of the pool. Frees mbufs that are
 * too long, those for which the pool has no buffer, and those with inconsistent lengths. */
struct bs_linearized bs_linearize(struct rte_mbuf **at, unsigned n, struct rte_mempool *pool);

struct bs_port_info {
	char driver[32];
	/* empty if the driver does not report it */
	char firmware[64];
	uint16_t max_rx_queues, max_tx_queues, rss;
	/* without FCS */
	uint32_t max_frame;
	int socket;
};
struct bs_port_stats {
	uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes, rx_missed, rx_errors, tx_errors, rx_no_buffer;
};
/* Probes a device ("net_null0,size=64" or "0000:01:00.0"); returns its port number. */
int bs_port_probe(const char *device, const char *name);
/* Creates two ports joined by a pair of rings of `depth` packets: each receives what the other sends. The caller frees the
 * rings with bs_wire_free. */
int bs_wire(const char *a, const char *b, unsigned depth, uint16_t ports[2], struct rte_ring *rings[2]);
/* Frees the rings of a wire after both ports have closed, and the packets left in them. */
void bs_wire_free(struct rte_ring *rings[2]);
int bs_port_info(uint16_t port, struct bs_port_info *info);
/* `rss` enables hardware RSS, `rx_interrupts` interrupts of receive queues. */
int bs_port_start(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint16_t rx_desc, uint16_t tx_desc, int rss, int rx_interrupts, uint16_t mtu, struct rte_mempool *pool);
/* Returns the descriptor that becomes readable on an interrupt of a receive queue. */
int bs_rx_interrupt_fd(uint16_t port, uint16_t queue);
/* Enables or disables the interrupt of a receive queue. */
int bs_rx_interrupt_enable(uint16_t port, uint16_t queue, int on);

int bs_rx_queue_count(uint16_t port, uint16_t queue);

int bs_rx_queue_size(uint16_t port, uint16_t queue);
int bs_port_stop(uint16_t port);
/* Guards the queues of a started memif port, so that the peer's memory is not unmapped during a burst; packets longer than
 * max_len are refused. bs_port_stop removes the guards. */
int bs_memif_guard(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint32_t max_len);
void bs_memif_unguard(uint16_t port);
int bs_port_stats(uint16_t port, struct bs_port_stats *stats);
int bs_port_mac(uint16_t port, uint8_t mac[6]);
/* Returns 1 if the link is up, 0 if it is down. */
int bs_port_link(uint16_t port);

/* Shared-memory rings (shared_ring.c): packet buffers passed between the server, which owns them, and a client process. The
 * queues of a region are the ports of one sandbox. */
enum { BS_MAX_QUEUES = 64 };
struct bs_region;
/* Returns the bytes needed for `queues` queues of `depth` packets in each direction and max_outstanding buffers. */
size_t bs_region_size(unsigned queues, unsigned depth, unsigned max_outstanding);
/* Initialises a region in zeroed memory, which the client has to map at the same address. */
int bs_region_init(struct bs_region *region, unsigned queues, unsigned depth, unsigned max_outstanding);
int bs_region_compatible(const struct bs_region *region, size_t size);
unsigned bs_region_queues(const struct bs_region *region);
/* The pool that buffers name while the client may hold them. */
struct rte_mempool *bs_region_proxy_pool(struct bs_region *region);
/* Server. Buffers that are sent or refilled must name the proxy pool; those received or taken as freed still do. */
unsigned bs_server_room(struct bs_region *region, unsigned queue);
unsigned bs_server_send(struct bs_region *region, unsigned queue, struct rte_mbuf **at, unsigned n);
unsigned bs_server_receive(struct bs_region *region, unsigned queue, struct rte_mbuf **at, unsigned n);
unsigned bs_server_refill_count(struct bs_region *region, unsigned queue);
unsigned bs_server_refill(struct bs_region *region, unsigned queue, struct rte_mbuf **at, unsigned n);
/* Returns 1 if the client waits for packets of the queue and is to be woken; then 0 until it waits again. */
int bs_server_has_to_wake(struct bs_region *region, unsigned queue);
int bs_server_has_freed(struct bs_region *region);
unsigned bs_server_take_freed(struct bs_region *region, struct rte_mbuf **at, unsigned n);
/* Client. */
unsigned bs_client_room(struct bs_region *region, unsigned queue);
unsigned bs_client_receive(struct bs_region *region, unsigned queue, struct rte_mbuf **at, unsigned n);
unsigned bs_client_send(struct bs_region *region, unsigned queue, struct rte_mbuf **at, unsigned n);
void bs_client_set_waiting(struct bs_region *region, unsigned queue, int waits);
/* Returns an empty buffer from the refill ring, or NULL. */
struct rte_mbuf *bs_client_alloc(struct bs_region *region, unsigned queue);
/* Returns all outstanding buffers to the pool, after the client has ended. */
void bs_region_reclaim(struct bs_region *region, struct rte_mempool *pool);

/* A range of memory and the file that backs it. */
struct bs_segment {
	char *at;
	size_t len;
	uint64_t offset;
	int fd;
};
/* Lists the memory segments of a pool's packets; returns their number. */
int bs_pool_segments(struct rte_mempool *pool, struct bs_segment *at, unsigned room);
