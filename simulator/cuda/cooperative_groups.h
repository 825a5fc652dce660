// Cooperative groups: the cluster that a block belongs to.
#pragma once

#include "../scheduler.hpp"
#include "../shared_memory.hpp"
#include "device_launch_parameters.h"

namespace cooperative_groups {

class cluster_group {
  public:
    static unsigned int num_blocks() { return simulator::cluster_size(); }
    static unsigned int block_rank() { return simulator::cluster_rank(); }
    static unsigned int num_threads() {
        return num_blocks() * blockDim.x * blockDim.y * blockDim.z;
    }

    /// Waits for all threads of the cluster.
    static void sync(SIMULATOR_SITE) { simulator::cluster_meet({"cluster.sync()", file, line}); }

    /// The same variable of block `rank`: a pointer to it.
    template <class T>
    static T* map_shared_rank(T* own, unsigned int rank, SIMULATOR_SITE) {
        const simulator::Site site{"map_shared_rank()", file, line};
        simulator::require_present(rank, site);
        return reinterpret_cast<T*>(
            simulator::shared_pointer(simulator::shared_address(own, site), rank));
    }
};

inline cluster_group this_cluster() { return {}; }

}  // namespace cooperative_groups
