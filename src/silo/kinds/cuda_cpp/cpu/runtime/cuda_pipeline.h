#pragma once
#error "an asynchronous copy (cuda_pipeline.h) does not run on the CPU"
