/* All of libdpdk that Bondstone touches. Structures whose layout moves between releases stay behind these functions. */
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

/* Where this release keeps what packet::Mbuf names. */
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

/* Starts the EAL; returns 0 or -rte_errno. argv must live for ever. */
int bs_eal_init(int argc, char **argv);
/* From now on DPDK logs into memory. bs_log_take copies what has come since into buf (NUL-terminated, its end if too long). */
int bs_log_capture(void);
size_t bs_log_take(char *buf, size_t room);
/* Reserves the dynamic field at `offset` (`size` bytes) and the dynamic flag `bit`; 0 or -rte_errno. */
int bs_reserve_dynamic(size_t offset, size_t size, unsigned stamped, unsigned noted);

/* n mbufs with `room` bytes (headroom included). spread: do not keep each within one page, which without huge pages lays
 * every header into one L1 set. NULL and rte_errno on failure. */
struct rte_mempool *bs_pool_create(const char *name, unsigned n, unsigned cache, uint16_t room, int spread);
struct rte_mbuf *bs_alloc(struct rte_mempool *pool);
int bs_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **at, unsigned n);
/* Puts back n direct, single-segment, sole-reference mbufs, of any pools. */
void bs_free(struct rte_mbuf **at, unsigned n);
/* What bs_tidy did: mbufs left at the front; of these, copied into a buffer of their own; freed as longer than a buffer. */
struct bs_tidied {
	unsigned kept, copied, too_long;
};
/* Copies received mbufs that are not direct, single and sole into one buffer of the pool; frees those that do not fit, those
 * for which the pool has none, and those whose lengths lie. */
struct bs_tidied bs_tidy(struct rte_mbuf **at, unsigned n, struct rte_mempool *pool);

struct bs_port_info {
	char driver[32];
	uint16_t max_rx_queues, max_tx_queues, rss;
	int socket;
};
struct bs_port_stats {
	uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes, rx_missed, rx_errors, tx_errors, rx_no_buffer;
};
/* A device string ("net_null0,size=64" or "0000:01:00.0") becomes a port; its number or a negative errno. */
int bs_port_probe(const char *device, const char *name);
/* Two ports joined by a wire: what one sends the other receives, up to depth packets under way in each direction. The rings are
 * the caller's, for bs_wire_free. 0 or a negative errno. */
int bs_wire(const char *a, const char *b, unsigned depth, uint16_t ports[2], struct rte_ring *rings[2]);
/* Frees the rings of a wire whose ports have both closed, with the packets that nobody has taken out of them. */
void bs_wire_free(struct rte_ring *rings[2]);
int bs_port_info(uint16_t port, struct bs_port_info *info);
/* rss: spread flows over the queues in hardware. */
int bs_port_start(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint16_t rx_desc, uint16_t tx_desc, int rss, int bells, struct rte_mempool *pool);
/* the file that can be read once somebody has rung for a receive queue */
int bs_rx_bell(uint16_t port, uint16_t queue);
/* whether somebody is to ring */
int bs_rx_ring(uint16_t port, uint16_t queue, int on);
int bs_port_stop(uint16_t port);
/* Puts gates before the queues of a started memif port, so that no peer's memory goes while a worker is at it; packets longer
 * than this are refused. bs_port_stop takes them away. 0 or a negative errno. */
int bs_gate(uint16_t port, uint16_t rx_queues, uint16_t tx_queues, uint32_t longest);
void bs_ungate(uint16_t port);
int bs_port_stats(uint16_t port, struct bs_port_stats *stats);
int bs_port_mac(uint16_t port, uint8_t mac[6]);
/* 1 up, 0 down, negative errno. */
int bs_port_link(uint16_t port);

/* Packet buffers lent to another process: loan.c. Lanes of a loan are the ports of one wall. */
enum { BS_LOAN_LANES = 64 };
struct bs_loan;
/* Bytes for so many lanes, on which `queue` packets may wait each way, with `most` lent at a time. */
size_t bs_loan_size(unsigned lanes, unsigned queue, unsigned most);
/* Makes one in zeroed memory, which the other process has to have at the same address; 0 or a negative errno. */
int bs_loan_make(struct bs_loan *loan, unsigned lanes, unsigned queue, unsigned most);
int bs_loan_fits(const struct bs_loan *loan, size_t size);
unsigned bs_loan_lanes(const struct bs_loan *loan);
/* The pool that lent buffers name, in the place of their own. */
struct rte_mempool *bs_loan_stand(struct bs_loan *loan);
/* The lender's side of a lane. What is lent or spare names the stand; what is taken back or was freed still does. */
unsigned bs_loan_room(struct bs_loan *loan, unsigned lane);
unsigned bs_loan_lend(struct bs_loan *loan, unsigned lane, struct rte_mbuf **at, unsigned n);
unsigned bs_loan_take_back(struct bs_loan *loan, unsigned lane, struct rte_mbuf **at, unsigned n);
unsigned bs_loan_spares(struct bs_loan *loan, unsigned lane);
unsigned bs_loan_lend_spare(struct bs_loan *loan, unsigned lane, struct rte_mbuf **at, unsigned n);
int bs_loan_freed(struct bs_loan *loan);
unsigned bs_loan_take_freed(struct bs_loan *loan, struct rte_mbuf **at, unsigned n);
/* The borrower's. */
unsigned bs_loan_room_back(struct bs_loan *loan, unsigned lane);
unsigned bs_loan_borrow(struct bs_loan *loan, unsigned lane, struct rte_mbuf **at, unsigned n);
unsigned bs_loan_give_back(struct bs_loan *loan, unsigned lane, struct rte_mbuf **at, unsigned n);
struct rte_mbuf *bs_loan_spare(struct bs_loan *loan, unsigned lane);
/* Once nobody else has it: puts all that is still lent back into the pool. */
void bs_loan_reclaim(struct bs_loan *loan, struct rte_mempool *pool);

/* A piece of memory, and the file that it is in. */
struct bs_piece {
	char *at;
	size_t len;
	uint64_t offset;
	int fd;
};
/* The pieces that a pool's packets are in; how many, or a negative errno. */
int bs_pool_pieces(struct rte_mempool *pool, struct bs_piece *at, unsigned room);
