#pragma once
#error "an asynchronous copy (cooperative_groups::memcpy_async) does not run on the CPU"
